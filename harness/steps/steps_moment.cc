// Steps about moments: waiting for one, and orders for what shall happen at one.
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/steps/steps_reader.h"
#include "harness/scenario/units.h"

namespace kv::drill {
namespace {

constexpr std::uint64_t kAlways = 0;
// So that no number of advances comes near the end of the clock, where it would stand still.
constexpr std::int64_t kLongestAdvance = std::int64_t{8760} * 3600 * 1'000'000'000;

// `times`: a number from 1 on, or "always".
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
      reader.fields.integer("times", 1, std::numeric_limits<std::int64_t>::max())
          .value_or(static_cast<std::int64_t>(otherwise)));
}

// The code that a failing call gives: a number, or the name of a driver result or errno value.
std::int64_t read_code(StepReader& reader) {
  const Node* code = reader.fields.require("code",
                                           "a number other than 0, a driver result or an "
                                           "errno value");
  if (code == nullptr) return 0;
  if (code->is(Node::Kind::kInteger)) {
    const auto number = reader.fields.integer("code", std::numeric_limits<std::int32_t>::min(),
                                              std::numeric_limits<std::int32_t>::max());
    if (number && *number == 0) {
      reader.faults.add(*code, "code = 0, which is no failure, expected another number");
    }
    return number.value_or(0);
  }
  if (!expect_kind(*code, Node::Kind::kText, "code", reader.faults)) return 0;
  if (const auto result = result_by_name(code->text)) return *result;
  if (const auto error = errno_by_name(code->text)) return *error;
  std::vector<std::string> known = result_names();
  known.insert(known.end(), errno_names().begin(), errno_names().end());
  reader.faults.add(
      *code, fmt::format("unknown code \"{}\"{}", code->text, expected_one(code->text, known)));
  return 0;
}

// What all orders share, after the address.
void read_order_rest(StepReader& reader, const std::string& key, GiveStep& step) {
  const Node* written = reader.fields.find(key);
  step.as = reader.fields.find("as") != nullptr ? reader.name("as") : written->text;
  step.may_miss = reader.fields.boolean("may_miss").value_or(false);
}

GiveStep order_at(StepReader& reader, const std::string& key, GiveStep::What what, Use use) {
  GiveStep step;
  step.what = what;
  step.at = reader.site(key, use);
  return step;
}

}  // namespace

Deeds read_wait(StepReader& reader) {
  WaitStep step;
  step.at = reader.site("wait", Use::kWatch);
  step.again = reader.fields.boolean("again").value_or(false);
  return {{step}};
}

Deeds read_hold(StepReader& reader) {
  GiveStep step = order_at(reader, "hold", GiveStep::What::kHold, Use::kAct);
  step.times = read_times(reader, 1);
  read_order_rest(reader, "hold", step);
  return {{step}};
}

Deeds read_release(StepReader& reader) {
  return {{ReleaseStep{reader.name("release")}}};
}

Deeds read_fail(StepReader& reader) {
  GiveStep step = order_at(reader, "fail", GiveStep::What::kFail, Use::kFail);
  if (const auto from =
          reader.fields.integer("from", 1, std::numeric_limits<std::int64_t>::max())) {
    if (step.at.hit) {
      reader.faults.add(*reader.fields.find("from"),
                        "from and hit mean the same, expected one of them");
    }
    step.at.hit = static_cast<std::uint64_t>(*from);
  }
  step.code = read_code(reader);
  step.times = read_times(reader, 1);
  read_order_rest(reader, "fail", step);
  return {{step}};
}

Deeds read_skip(StepReader& reader) {
  GiveStep step = order_at(reader, "skip", GiveStep::What::kSkip, Use::kSkip);
  step.times = read_times(reader, kAlways);
  read_order_rest(reader, "skip", step);
  return {{step}};
}

Deeds read_crash(StepReader& reader) {
  GiveStep step = order_at(reader, "crash", GiveStep::What::kCrash, Use::kAct);
  const auto name = reader.fields.text("signal").value_or("SEGV");
  if (const auto signal = signal_by_name(name)) {
    step.code = *signal;
  } else {
    reader.faults.add(
        *reader.fields.find("signal"),
        fmt::format("unknown signal \"{}\"{}", name, expected_one(name, signal_names())));
  }
  read_order_rest(reader, "crash", step);
  return {{step}};
}

Deeds read_freeze(StepReader& reader) {
  GiveStep step = order_at(reader, "freeze", GiveStep::What::kFreeze, Use::kAct);
  read_order_rest(reader, "freeze", step);
  return {{step}};
}

Deeds read_run(StepReader& reader) {
  GiveStep step;
  step.what = GiveStep::What::kRun;
  step.command = reader.command("run");
  step.at = reader.site("at", Use::kAct);
  step.arguments = reader.arguments();
  step.times = read_times(reader, 1);
  read_order_rest(reader, "run", step);
  return {{step}};
}

Deeds read_advance(StepReader& reader) {
  AdvanceStep step;
  step.ns = reader.fields.duration("advance").value_or(0);
  const Node& value = *reader.fields.find("advance");
  if (step.ns == 0 && value.is(Node::Kind::kText) && parse_duration(value.text)) {
    reader.faults.add(value, "advance by nothing, expected a duration above 0");
  }
  if (step.ns > kLongestAdvance) {
    reader.faults.add(value, fmt::format("advance by {}, expected at most a year (8760h)",
                                         show_duration(step.ns)));
  }
  if (!reader.world.manual_clock) {
    reader.faults.add(value,
                      "advance moves the manual clock, expected a drill without clock = "
                      "\"real\"");
  }
  return {{step}};
}

}  // namespace kv::drill
