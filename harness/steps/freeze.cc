// freeze: the whole process stops at the moment, until the release.
#include "harness/steps/give.h"

namespace kv::drill {

Deeds read_freeze(StepReader& reader) {
  return finished_order(reader, order_at(reader, "freeze", Action::kFreeze, Use::kAct, "freeze"));
}

}  // namespace kv::drill
