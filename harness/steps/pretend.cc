// pretend: the call at the moment reports success, and is not made: a driver that lies.
#include "harness/steps/give.h"

namespace kv::drill {

Deeds read_pretend(StepReader& reader) {
  GiveStep step = order_at(reader, "pretend", Action::kPretend, Use::kFail, "pretend");
  read_from(reader, step);
  step.order.times = read_times(reader, 1);
  return finished_order(reader, step);
}

}  // namespace kv::drill
