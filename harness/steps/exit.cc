// exit: tells a process how to end, and waits for it.
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct ExitStep {
  std::string process;
  std::string how = "return";  // return, exit, _exit, abort, quick_exit
  int code = 0;
  bool wait = true;

  std::string text() const {
    std::string text = "exit " + process;
    if (how != "return") text += " by " + how;
    if (code != 0) text += fmt::format(" with code {}", code);
    if (!wait) text += ", without waiting";
    return text;
  }

  void check(Flow& flow) const {
    if (!flow.alive(process, "exit") || flow.told(process, "exit")) return;
    flow.process(process) = {wait ? Flow::Process::kEnded : Flow::Process::kTold, flow.line()};
  }

  Outcome carry_out(Executor& executor) const {
    executor.situation().take_in();
    if (std::string why = executor.nobody_left(process); !why.empty()) {
      return {Outcome::How::kHopeless, why};
    }
    Instance& instance = *executor.situation().find(process);
    if (!executor.tell_to_end(instance, how, code)) {
      return {Outcome::How::kBroken, fmt::format("{} cannot be told to end", process)};
    }
    return wait ? executor.wait_for_end(instance) : Outcome{};
  }
};

}  // namespace

Deeds read_exit(StepReader& reader) {
  ExitStep step;
  step.process = reader.process("exit");
  step.how = reader.fields.word("how", {"return", "exit", "_exit", "abort", "quick_exit"})
                 .value_or("return");
  step.code = reader.exit_code("code").value_or(0);
  if (const Node* code = reader.fields.find("code"); code != nullptr && step.how == "abort") {
    reader.faults.add(*code, "abort has no code, expected the step without it");
  }
  step.wait = reader.fields.boolean("wait").value_or(true);
  return {{step}};
}

}  // namespace kv::drill
