#include "harness/steps/give.h"

#include <utility>

namespace kv::drill {

std::string GiveStep::text() const {
  const std::string at = moment(order.at);
  // Without `as` the address is the name.
  const std::string as = order.as.starts_with(order.at.site) ? "" : " as " + order.as;
  const std::string often = order.times == 1         ? ""
                            : order.times == kAlways ? ", always"
                                                     : fmt::format(", {} times", order.times);
  switch (order.action) {
    case Action::kHold:
      return fmt::format("hold {}{}", at, as);
    case Action::kFail:
      return fmt::format("fail {} with {}{}", at, order.code, often);
    case Action::kPretend:
      return fmt::format("pretend {}{}", at, often);
    case Action::kSkip:
      return "skip " + at;
    case Action::kCrash:
      return fmt::format("crash at {} by {}", at, short_signal_name(static_cast<int>(order.code)));
    case Action::kFreeze:
      return fmt::format("freeze at {}{}", at, as);
    case Action::kRun:
      return fmt::format("run {} at {}{}", order.command, at, unless(order.as, order.command));
  }
  return at;
}

void GiveStep::foretell(Ahead& ahead) const {
  ahead.moments.insert(order.at.site);
  if (order.action == Action::kRun && order.command == kShutdownCommand) {
    ahead.shut_down.insert(order.at.process);
  }
  if (order.action == Action::kFail) ahead.codes.insert(order.code);
}

void GiveStep::check(Flow& flow) const {
  flow.order_given(order.at.process, word);
  const auto key = flow.key_or("as", word);
  if (order.action == Action::kRun) {
    flow.call_made(order.as, key);
    return;
  }
  const bool holds = order.action == Action::kHold || order.action == Action::kFreeze;
  const auto known = flow.holds.find(order.as);
  if ((holds || key == "as") && known != flow.holds.end() && known->second.active) {
    flow.refuse(key, fmt::format("\"{}\" is the name of an order in line {}, expected another name "
                                 "by as",
                                 order.as, known->second.line));
  }
  if (holds) flow.holds[order.as] = {true, flow.line()};
}

Outcome GiveStep::carry_out(Executor& executor) const {
  executor.give(order);
  return {};
}

GiveStep order_at(StepReader& reader, const char* word, Action action, Use use,
                  const std::string& key) {
  GiveStep step;
  step.word = word;
  step.order.action = action;
  step.order.at = reader.site(key, use);
  return step;
}

std::uint64_t read_times(StepReader& reader, std::uint64_t otherwise) {
  const Node* times = reader.fields.find("times");
  if (times == nullptr) return otherwise;
  if (times->is(Node::Kind::kText)) {
    if (times->text != "always") {
      reader.faults.add(
          *times, fmt::format("times = \"{}\", expected a number or \"always\"", times->text));
    }
    return kAlways;
  }
  return static_cast<std::uint64_t>(
      reader.fields.integer("times", 1, INT64_MAX).value_or(static_cast<std::int64_t>(otherwise)));
}

void read_from(StepReader& reader, GiveStep& step) {
  const auto from = reader.fields.integer("from", 1, INT64_MAX);
  if (!from) return;
  if (step.order.at.hit) {
    reader.faults.add(*reader.fields.find("from"),
                      "from and hit mean the same, expected one of them");
  }
  step.order.at.hit = static_cast<std::uint64_t>(*from);
}

Deeds finished_order(StepReader& reader, GiveStep step) {
  const Node* written = reader.fields.find(step.word);
  step.order.as = reader.fields.find("as") != nullptr ? reader.name("as") : written->text;
  step.order.may_miss = reader.fields.boolean("may_miss").value_or(false);
  return {{std::move(step)}};
}

}  // namespace kv::drill
