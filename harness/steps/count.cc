// count: how often a moment came by the time nobody can move, or, with at_least alone, has come.
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct CountStep {
  Address of;
  std::optional<std::uint64_t> is, at_least, at_most;

  std::string text() const {
    std::string text = "count " + moment(of);
    if (is) text += fmt::format(" is {}", *is);
    if (at_least) text += fmt::format(" at least {}", *at_least);
    if (at_most) text += fmt::format(" at most {}", *at_most);
    return text;
  }
  bool only_looks() const { return true; }
  void foretell(Ahead& ahead) const { ahead.moments.insert(of.site); }

  void check(Flow& flow) const {
    if (!of.process.empty()) flow.was_started(of.process, flow.key_or("in", "count"));
  }

  Outcome carry_out(Executor& executor) const {
    // It only grows: above what it may be it is wrong for good, and with at_least alone it is right
    // for good.
    const auto most = is ? is : at_most;
    const auto counted = [&] { return executor.moments().count(of); };
    Outcome settled = executor.settle(
        to_string(of) + " still happens", [&] { return most && counted() > *most; },
        [&] { return !most && counted() >= at_least.value_or(0); });
    if (settled.how != Outcome::How::kDone) return settled;
    const std::uint64_t number = counted();
    std::string wanted;
    if (is && number != *is) wanted = fmt::format("{}", *is);
    if (at_least && number < *at_least) wanted = fmt::format("at least {}", *at_least);
    if (at_most && number > *at_most) wanted = fmt::format("at most {}", *at_most);
    if (wanted.empty()) return {};
    return wrong(fmt::format("{} happened {} time{}, expected {}", to_string(of), number,
                             number == 1 ? "" : "s", wanted));
  }
};

}  // namespace

Deeds read_count(StepReader& reader) {
  CountStep step;
  step.of = reader.site("count", Use::kWatch, false);
  if (step.of.hit) {
    reader.faults.add(*reader.fields.find("count"),
                      "a hit occurs once, expected a moment without \"#\"");
  }
  step.is = reader.amount("is");
  step.at_least = reader.amount("at_least");
  step.at_most = reader.amount("at_most");
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

}  // namespace kv::drill
