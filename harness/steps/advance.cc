// advance: moves the manual clock, and waits until every process has taken it over.
#include <algorithm>
#include <cstdint>
#include <string>

#include "harness/scenario/units.h"
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

constexpr std::int64_t kLongest = kYear;

struct AdvanceStep {
  std::int64_t ns = 0;

  std::string text() const { return "advance " + show_duration(ns); }
  void check(Flow& flow) const { flow.advance(ns); }

  Outcome carry_out(Executor& executor) const {
    const std::int64_t time = executor.board().clock_now() + ns;
    executor.board().record(kAdvanceEvent, 0, ns, {});
    executor.board().set_clock(time);
    const auto& all = executor.situation().instances();
    Outcome outcome = executor.wait_for([&all, time] {
      return std::all_of(all.begin(), all.end(), [time](const Instance& instance) {
        return !instance.lives() || !instance.ready || instance.clock >= time;
      });
    });
    if (outcome.how != Outcome::How::kDone) return outcome;
    // A clock that nobody has taken cannot be moved.
    std::string why;
    for (const Instance& instance : all) {
      if (!instance.lives() || !instance.ready) continue;
      const std::string clockless = executor.without_clock(instance.name());
      if (clockless.empty()) return {};
      why += (why.empty() ? "" : "; ") + clockless;
    }
    return why.empty() ? Outcome{} : wrong(why);
  }
};

}  // namespace

Deeds read_advance(StepReader& reader) {
  AdvanceStep step;
  step.ns = reader.fields.duration("advance").value_or(0);
  const Node& value = *reader.fields.find("advance");
  if (step.ns == 0 && value.is(Node::Kind::kText) && parse_duration(value.text)) {
    reader.faults.add(value, "advance by nothing, expected a duration above 0");
  }
  if (step.ns > kLongest) {
    reader.faults.add(value, fmt::format("advance by {}, expected at most a year (8760h)",
                                         show_duration(step.ns)));
    step.ns = kLongest;
  }
  if (!reader.world.manual_clock) {
    reader.faults.add(value,
                      "advance moves the manual clock, expected a drill without clock = "
                      "\"real\"");
  }
  return {{step}};
}

}  // namespace kv::drill
