// card: what the card's ledger says that a living process holds, once nobody can move.
#include <cstdint>
#include <utility>

#include "harness/process/card_ledger.h"
#include "harness/scenario/units.h"
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct CardStep {
  std::string process;
  std::optional<std::int64_t> bytes, handles, mappings, reservations;  // unset: not asserted

  std::string text() const {
    std::string text = fmt::format("card of {}", process);
    if (bytes) text += fmt::format(", bytes {}", show_bytes(*bytes));
    if (handles) text += fmt::format(", handles {}", *handles);
    if (mappings) text += fmt::format(", mappings {}", *mappings);
    if (reservations) text += fmt::format(", reservations {}", *reservations);
    return text;
  }
  bool only_looks() const { return true; }
  void check(Flow& flow) const { flow.alive(process, "card"); }

  // "bytes 4096, expected 0" for each amount that differs; empty: none does.
  std::string difference(const Holding& held) const {
    const std::pair<std::optional<std::int64_t>, std::pair<const char*, std::uint64_t>> amounts[] =
        {{bytes, {"bytes", held.bytes}},
         {handles, {"handles", held.handles}},
         {mappings, {"mappings", held.mappings}},
         {reservations, {"reservations", held.reservations}}};
    std::string text;
    for (const auto& [wanted, got] : amounts) {
      if (!wanted || static_cast<std::uint64_t>(*wanted) == got.second) continue;
      if (!text.empty()) text += "; ";
      text += fmt::format("{} {}, expected {}", got.first, got.second, *wanted);
    }
    return text;
  }

  Outcome carry_out(Executor& executor) const {
    if (!executor.options().fake_card) {
      return {Outcome::How::kSkipped, "the driver keeps no ledger that says what a process holds"};
    }
    const Instance* instance = executor.situation().find(process);
    if (instance == nullptr) return wrong(process + " was not started");
    Outcome settled = executor.settle(process + " still takes from the card or gives back");
    if (settled.how != Outcome::How::kDone) return settled;
    const auto state = read_ledger(executor.folder().ledger());
    if (!state) return {Outcome::How::kBroken, state.error()};
    Holding held;
    for (const Holding& owner : state->owners) {
      if (owner.pid == instance->child.pid()) held = owner;
    }
    const std::string why = difference(held);
    return why.empty() ? Outcome{} : wrong(fmt::format("{} holds {}", process, why));
  }
};

}  // namespace

Deeds read_card(StepReader& reader) {
  CardStep step;
  step.process = reader.process("card");
  step.bytes = reader.fields.bytes("bytes");
  step.handles = reader.fields.integer("handles", 0, INT64_MAX);
  step.mappings = reader.fields.integer("mappings", 0, INT64_MAX);
  step.reservations = reader.fields.integer("reservations", 0, INT64_MAX);
  const auto& table = reader.fields.node();
  if (table.find("bytes") == nullptr && table.find("handles") == nullptr &&
      table.find("mappings") == nullptr && table.find("reservations") == nullptr) {
    reader.faults.add(table,
                      "card without an amount, expected bytes, handles, mappings or "
                      "reservations");
  }
  return {{step}};
}

}  // namespace kv::drill
