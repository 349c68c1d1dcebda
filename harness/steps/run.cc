// run: a command of the engine runs at the moment, on the very thread that comes there.
#include "harness/steps/give.h"

namespace kv::drill {

Deeds read_run(StepReader& reader) {
  const std::string command = reader.command("run");
  GiveStep step = order_at(reader, "run", Action::kRun, Use::kAct, "at");
  step.order.command = command;
  step.order.arguments = reader.arguments();
  step.order.times = read_times(reader, 1);
  return finished_order(reader, step);
}

}  // namespace kv::drill
