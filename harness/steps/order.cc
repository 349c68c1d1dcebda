// order: the first occurrences of moments came in this order.
#include <algorithm>
#include <utility>

#include "harness/scenario/units.h"
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct OrderStep {
  std::vector<Address> addresses;

  std::string text() const {
    const auto& all = addresses;
    const bool one_process = std::all_of(all.begin(), all.end(), [&](const Address& address) {
      return address.process == all.front().process;
    });
    std::string text;
    for (Address address : all) {
      if (one_process) address.process.clear();
      text += (text.empty() ? "order " : " < ") + to_string(address);
    }
    if (one_process && !all.empty() && !all.front().process.empty()) {
      text += " in " + all.front().process;
    }
    return text;
  }
  bool only_looks() const { return true; }
  void foretell(Ahead& ahead) const {
    for (const Address& address : addresses) ahead.moments.insert(address.site);
  }

  void check(Flow& flow) const {
    for (const Address& address : addresses) {
      if (!address.process.empty() && !flow.was_started(address.process, "order")) return;
    }
  }

  Outcome carry_out(Executor& executor) const {
    // First occurrences stay what they are: when all are there, there is nothing more to wait for.
    Outcome settled = executor.settle("all of it still happens", nullptr, [&] {
      return std::all_of(addresses.begin(), addresses.end(), [&](const Address& one) {
        return executor.moments().first(one) != nullptr;
      });
    });
    if (settled.how != Outcome::How::kDone) return settled;
    const Event* before = nullptr;
    std::string before_name;
    for (const Address& address : addresses) {
      const Event* event = executor.moments().first(address);
      if (event == nullptr) return wrong(fmt::format("{} never happened", to_string(address)));
      if (before != nullptr && event->sequence < before->sequence) {
        return wrong(fmt::format("{} (event {}) came before {} (event {})", to_string(address),
                                 event->sequence, before_name, before->sequence));
      }
      before = event;
      before_name = to_string(address);
    }
    return {};
  }
};

// A moment of the list; unset: wrong, reported.
std::optional<Address> read_moment(StepReader& reader, const Node& item) {
  if (!expect_kind(item, Node::Kind::kText, "a moment of order", reader.faults)) return {};
  auto address = parse_address(item.text);
  if (!address) {
    reader.faults.add(item, address.error());
    return {};
  }
  const auto names = reader.world.process_names();
  if (auto why = why_not_site(reader.world.engine, address->site, Use::kWatch); !why.empty()) {
    reader.faults.add(item, std::move(why));
  } else if (!address->process.empty() && !names.empty() &&
             std::find(names.begin(), names.end(), address->process) == names.end()) {
    reader.faults.add(item, fmt::format("unknown process \"{}\"{}", address->process,
                                        expected_one(address->process, names)));
  }
  if (address->process.empty() && names.size() == 1) address->process = names.front();
  return *std::move(address);
}

}  // namespace

Deeds read_order(StepReader& reader) {
  OrderStep step;
  const Node* list = reader.fields.list("order");
  if (list == nullptr) return {{step}};
  if (list->list.size() < 2) {
    reader.faults.add(*list, "order has fewer than two moments, expected at least two");
  }
  for (const Node& item : list->list) {
    auto address = read_moment(reader, item);
    if (!address) continue;
    const std::string text = to_string(*address);
    const bool twice = std::any_of(step.addresses.begin(), step.addresses.end(),
                                   [&](const Address& other) { return to_string(other) == text; });
    if (twice) {
      reader.faults.add(item, fmt::format("\"{}\" is in the order twice and cannot come after "
                                          "itself, expected a hit to tell them apart, as in "
                                          "\"name#2\"",
                                          item.text));
    }
    step.addresses.push_back(*std::move(address));
  }
  return {{step}};
}

}  // namespace kv::drill
