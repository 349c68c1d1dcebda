// returns: waits for the answer of a call and compares it.
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct ReturnsStep {
  std::string as;
  std::optional<std::string> value;
  std::string part;  // the answer contains it (errors)

  std::string text() const {
    std::string text = "returns " + as;
    if (value) text += " = " + *value;
    if (!part.empty()) text += fmt::format(", saying \"{}\"", part);
    return text;
  }
  bool only_looks() const { return true; }

  void check(Flow& flow) const {
    if (auto* call = flow.call_out(as, "returns")) *call = {false, flow.line()};
  }

  Outcome carry_out(Executor& executor) const {
    ScriptedCall* call = executor.situation().find_call(as);
    if (call == nullptr || !call->delivered) return {Outcome::How::kNotJudged, {}};
    Outcome outcome =
        executor.wait_for([call] { return call->returned; },
                          [&executor, call] { return executor.nobody_left(call->process); });
    if (outcome.how != Outcome::How::kDone) return outcome;
    const std::string got = call->failed ? fmt::format("the error '{}'", call->answer)
                                         : fmt::format("'{}'", call->answer);
    if (value && *value != (call->failed ? "error" : call->answer)) {
      return wrong(fmt::format("{} returned {}, expected '{}'", as, got, *value));
    }
    if (!value && call->failed && part.empty()) {
      return wrong(fmt::format("{} returned {}", as, got));
    }
    if (call->answer.find(part) == std::string::npos) {
      return wrong(fmt::format("{} returned {}, expected '{}' in it", as, got, part));
    }
    return {};
  }
};

}  // namespace

Deeds read_returns(StepReader& reader) {
  ReturnsStep step;
  step.as = reader.name("returns");
  step.value = reader.fields.text("value");
  step.part = reader.fields.text("text").value_or("");
  return {{step}};
}

}  // namespace kv::drill
