// Steps that look at what happened and at what is there: events, logs, files, the card.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/steps/steps_reader.h"
#include "harness/scenario/units.h"

namespace kv::drill {

namespace {
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::optional<std::uint64_t> read_amount(StepReader& reader, const std::string& key) {
  const auto amount = reader.fields.integer(key, 0, kMost);
  if (!amount) return std::nullopt;
  return static_cast<std::uint64_t>(*amount);
}
// A drill makes files in its own folder, and where its processes say that they have theirs.
bool is_below_the_run(const std::string& path) {
  if (path.empty()) return true;  // refused already
  if (("/" + path + "/").find("/../") != std::string::npos) return false;
  const auto close = path.find('}');
  if (path.front() != '{' || close == std::string::npos) return false;
  return path.substr(0, close) != "{run" || path.compare(close, 2, "}/") == 0;
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
    if (!expect_kind(item, Node::Kind::kText, "a moment of order", reader.faults)) continue;
    auto address = parse_address(item.text);
    if (!address) {
      reader.faults.add(item, address.error());
      continue;
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

Deeds read_count(StepReader& reader) {
  CountStep step;
  step.of = reader.site("count", Use::kWatch, false);
  if (step.of.hit) {
    reader.faults.add(*reader.fields.find("count"),
                      "a hit occurs once, expected a moment without \"#\"");
  }
  step.is = read_amount(reader, "is");
  step.at_least = read_amount(reader, "at_least");
  step.at_most = read_amount(reader, "at_most");
  const auto has = [&](const char* key) { return reader.fields.find(key) != nullptr; };
  if (!has("is") && !has("at_least") && !has("at_most")) {
    reader.faults.add(reader.fields.node(),
                      "count without a number, expected is, at_least or at_most");
  } else if (has("is") && (has("at_least") || has("at_most"))) {
    reader.faults.add(*reader.fields.find("is"),
                      "is excludes at_least and at_most, expected one or the others");
  } else if (step.at_least && step.at_most && *step.at_least > *step.at_most) {
    reader.faults.add(*reader.fields.find("at_most"),
                      fmt::format("at_most = {}, expected no less than at_least, which is {}",
                                  *step.at_most, *step.at_least));
  }
  return {{step}};
}

Deeds read_logged(StepReader& reader) {
  LoggedStep step;
  step.text = reader.fields.required_text("logged", "a part of the line").value_or("");
  step.process = reader.in();
  return {{step}};
}

Deeds read_file(StepReader& reader) {
  FileStep step;
  step.path = reader.path(*reader.fields.find("file"), "file");
  std::string state = "present";
  if (reader.fields.require("is", "present, absent, socket or same") != nullptr) {
    state = reader.fields.word("is", {"present", "absent", "socket", "same"}).value_or(state);
  }
  if (state == "absent") step.state = FileStep::State::kAbsent;
  if (state == "socket") step.state = FileStep::State::kSocket;
  if (state == "same") step.state = FileStep::State::kSame;
  if (const Node* as = reader.fields.find("as")) {
    step.as = reader.name("as");
    if (step.state == FileStep::State::kAbsent) {
      reader.faults.add(*as, "an absent file cannot be remembered, expected the step without as");
    }
  } else if (step.state == FileStep::State::kSame) {
    reader.fields.require("as", "the name under which an earlier file step remembered it");
  }
  return {{step}};
}

Deeds read_place(StepReader& reader) {
  PlaceStep step;
  const Node& path = *reader.fields.find("place");
  step.path = reader.path(path, "place");
  if (path.is(Node::Kind::kText) && !is_below_the_run(step.path)) {
    reader.faults.add(path, fmt::format("place = \"{}\" may lie anywhere, expected a path that "
                                        "begins with {{run}}/ or {{PROCESS.FACT}}, without \"..\"",
                                        step.path));
  }
  step.contents = reader.fields.text("contents").value_or("");
  step.socket = reader.fields.boolean("socket").value_or(false);
  step.replace = reader.fields.boolean("replace").value_or(false);
  if (const Node* contents = reader.fields.find("contents"); contents != nullptr && step.socket) {
    reader.faults.add(*contents, "a socket has no contents, expected one of contents and socket");
  }
  return {{step}};
}

Deeds read_card(StepReader& reader) {
  CardStep step;
  step.process = reader.process("card");
  step.bytes = reader.fields.bytes("bytes");
  step.handles = reader.fields.integer("handles", 0, kMost);
  step.mappings = reader.fields.integer("mappings", 0, kMost);
  step.reservations = reader.fields.integer("reservations", 0, kMost);
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
