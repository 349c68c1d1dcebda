// hold: a thread that comes to the moment stands there until the release.
#include "harness/steps/give.h"

namespace kv::drill {

Deeds read_hold(StepReader& reader) {
  GiveStep step = order_at(reader, "hold", Action::kHold, Use::kAct, "hold");
  step.order.times = read_times(reader, 1);
  return finished_order(reader, step);
}

}  // namespace kv::drill
