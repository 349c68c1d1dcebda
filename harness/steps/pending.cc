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
    return executor.stays_away(
        [this, &executor, call]() -> std::optional<std::string> {
          if (!call->returned) return std::nullopt;
          const std::string clockless = executor.without_clock(call->process);
          return fmt::format("{} has returned {}'{}'{}{}", as, call->failed ? "the error " : "",
                             call->answer, clockless.empty() ? "" : "; ", clockless);
        },
        [&executor, call] { return executor.nobody_left(call->process); },
        as + " can still return");
  }
};

}  // namespace

Deeds read_pending(StepReader& reader) {
  return {{PendingStep{reader.name("pending")}}};
}

}  // namespace kv::drill
