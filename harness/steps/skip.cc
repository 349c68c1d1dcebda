// skip: a protection is left out.
#include "harness/steps/give.h"

namespace kv::drill {

Deeds read_skip(StepReader& reader) {
  GiveStep step = order_at(reader, "skip", Action::kSkip, Use::kSkip, "skip");
  step.order.times = read_times(reader, kAlways);
  return finished_order(reader, step);
}

}  // namespace kv::drill
