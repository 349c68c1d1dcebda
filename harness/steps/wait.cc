// wait: for a moment; at once when it is in the record already.
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct WaitStep {
  Address at;
  bool again = false;  // for one more from now on

  std::string text() const {
    return fmt::format("wait {}{}", moment(at), again ? ", once more" : "");
  }
  void foretell(Ahead& ahead) const { ahead.moments.insert(at.site); }
  void check(Flow& flow) const { flow.alive(at.process, "wait"); }

  Outcome carry_out(Executor& executor) const {
    executor.situation().take_in();
    const std::uint64_t before = again ? executor.moments().count(at) : 0;
    return executor.wait_for([&] { return executor.moments().count(at) > before; },
                             [&] { return executor.nobody_left(at.process); });
  }
};

}  // namespace

Deeds read_wait(StepReader& reader) {
  WaitStep step;
  step.at = reader.site("wait", Use::kWatch);
  step.again = reader.fields.boolean("again").value_or(false);
  return {{step}};
}

}  // namespace kv::drill
