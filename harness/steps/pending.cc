// pending: the call has not returned, and will not by itself.
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct PendingStep {
  std::string as;

  std::string text() const { return "pending " + as; }
  bool only_looks() const { return true; }
  void check(Flow& flow) const { flow.call_out(as, "pending"); }

  Outcome carry_out(Executor& executor) const {
    const ScriptedCall* call = executor.situation().find_call(as);
    if (call == nullptr || !call->delivered) return {Outcome::How::kNotJudged, {}};
    const auto nobody_left = [&] { return executor.nobody_left(call->process); };
    Outcome outcome = executor.settle(
        as + " can still return", [call] { return call->returned; },
        [&] { return !nobody_left().empty(); });
    if (outcome.how != Outcome::How::kDone) return outcome;
    if (call->returned) {
      const std::string clockless = executor.without_clock(call->process);
      return wrong(fmt::format("{} has returned {}'{}'{}{}", as, call->failed ? "the error " : "",
                               call->answer, clockless.empty() ? "" : "; ", clockless));
    }
    if (std::string why = nobody_left(); !why.empty()) return {Outcome::How::kHopeless, why};
    return {};
  }
};

}  // namespace

Deeds read_pending(StepReader& reader) {
  return {{PendingStep{reader.name("pending")}}};
}

}  // namespace kv::drill
