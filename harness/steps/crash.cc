// crash: the process dies at the moment, by a signal.
#include "harness/steps/give.h"

namespace kv::drill {

Deeds read_crash(StepReader& reader) {
  GiveStep step = order_at(reader, "crash", Action::kCrash, Use::kAct, "crash");
  const bool named = reader.fields.find("signal") != nullptr;
  step.order.code = (named ? reader.signal("signal") : signal_by_name("SEGV")).value_or(0);
  return finished_order(reader, step);
}

}  // namespace kv::drill
