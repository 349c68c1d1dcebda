// ended: waits for the end of a process that ends by itself, by a crash order or by a signal.
#include <csignal>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct EndedStep {
  std::string process;
  std::optional<int> code, signal;

  std::string text() const {
    std::string text = process + " ended";
    if (code) text += fmt::format(" with code {}", *code);
    if (signal) text += " by signal " + short_signal_name(*signal);
    return text;
  }

  void foretell(Ahead& ahead) const {
    if (code || signal) ahead.ends.push_back({process, code, signal});
  }

  void check(Flow& flow) const {
    if (!flow.was_started(process, "ended")) return;
    Flow::ProcessState& state = flow.process(process);
    const bool killed = state.state == Flow::Process::kKilled;
    if (state.state == Flow::Process::kEnded) {
      flow.refuse("ended", fmt::format("{} ended in line {} already, expected one such step",
                                       process, state.line));
      return;
    }
    if (killed && code) {
      flow.refuse("code", fmt::format("{} was killed in line {} and has no exit code, expected "
                                      "signal = \"KILL\"",
                                      process, state.line));
    } else if (killed && signal && *signal != SIGKILL) {
      flow.refuse("signal", fmt::format("{} was killed in line {}, expected signal = \"KILL\"",
                                        process, state.line));
    }
    state = {Flow::Process::kEnded, flow.line()};
  }

  Outcome carry_out(Executor& executor) const {
    Instance* instance = executor.situation().find(process);
    if (instance == nullptr) return wrong(process + " was not started");
    instance->asked = true;
    if (code || signal) {
      instance->end_said = true;
      instance->expected = {};
      instance->expected.code = code;
      instance->expected.signal = signal;
    }
    return executor.wait_for_end(*instance);
  }
};

}  // namespace

Deeds read_ended(StepReader& reader) {
  EndedStep step;
  step.process = reader.process("ended");
  step.code = reader.exit_code("code");
  if (const Node* signal = reader.fields.find("signal")) {
    step.signal = reader.signal("signal");
    if (reader.fields.find("code") != nullptr) {
      reader.faults.add(*signal, "code and signal exclude each other, expected one of them");
    }
  }
  return {{step}};
}

}  // namespace kv::drill
