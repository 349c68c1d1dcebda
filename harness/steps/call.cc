// call: starts a command of the engine on a thread of its own, and goes on when it has begun.
#include <utility>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct CallStep {
  std::string process, command, as;
  Value arguments;

  std::string text() const {
    return fmt::format("call {} in {}{}", command, process, unless(as, command));
  }

  void foretell(Ahead& ahead) const {
    if (command == kShutdownCommand) ahead.shut_down.insert(process);
  }

  void check(Flow& flow) const {
    const auto key = flow.key_or("in", "call");
    if (flow.alive(process, key)) flow.told(process, key);
    flow.call_made(as, flow.key_or("as", "call"));
  }

  Outcome carry_out(Executor& executor) const {
    Situation& situation = executor.situation();
    ScriptedCall call;
    call.name = as;
    call.process = process;
    call.command = command;
    const std::uint32_t id = situation.add_call(std::move(call));
    ScriptedCall& made = *situation.find_call(as);
    situation.take_in();
    const auto gone = [this, &executor] { return executor.nobody_left(process); };
    if (std::string why = gone(); !why.empty()) return {Outcome::How::kHopeless, why};
    made.delivered = executor.board().call(process, command, to_json(arguments), as, id);
    if (!made.delivered) {
      return wrong(
          fmt::format("{} takes no call: it serves none, or its mailbox is full", process));
    }
    // A stopped process takes it when it goes on: that nobody moves is no failure of the call.
    const Waited waited =
        situation.wait({[&made] { return made.begun; }, gone, executor.limit_ns(), 4});
    return waited.how == WaitEnd::kStuck ? Outcome{} : executor.of_wait(waited);
  }
};

}  // namespace

Deeds read_call(StepReader& reader) {
  CallStep step;
  step.command = reader.command("call");
  step.process = reader.in();
  step.as = reader.fields.find("as") != nullptr ? reader.name("as") : step.command;
  step.arguments = reader.arguments();
  if (step.as.empty()) reader.lost = true;
  return {{step}};
}

}  // namespace kv::drill
