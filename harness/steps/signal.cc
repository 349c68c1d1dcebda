// signal: sends one to a process.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

// Whether a process that does nothing about it dies by this signal.
bool ends_a_process(int signal) {
  constexpr std::array<int, 8> kHarmless = {SIGSTOP, SIGTSTP, SIGTTIN,  SIGTTOU,
                                            SIGCONT, SIGCHLD, SIGWINCH, SIGURG};
  return std::find(kHarmless.begin(), kHarmless.end(), signal) == kHarmless.end();
}

bool is_stopped(const Child& child) {
  siginfo_t info{};
  return ::waitid(P_PIDFD, static_cast<id_t>(child.pidfd()), &info, WSTOPPED | WNOHANG | WNOWAIT) ==
             0 &&
         info.si_pid != 0;
}

struct SignalStep {
  std::string process;
  int signal = 0;

  std::string text() const {
    return fmt::format("signal {} to {}", short_signal_name(signal), process);
  }

  void check(Flow& flow) const {
    if (!flow.alive(process, "to")) return;
    if (signal == SIGKILL) flow.process(process) = {Flow::Process::kKilled, flow.line()};
  }

  Outcome carry_out(Executor& executor) const {
    executor.situation().take_in();
    const auto gone = [this, &executor] { return executor.nobody_left(process); };
    if (std::string why = gone(); !why.empty()) return {Outcome::How::kHopeless, why};
    Instance& instance = *executor.situation().find(process);
    if (ends_a_process(signal)) {
      executor.look_at_what_it_kept(instance);
      instance.asked = true;
      // A process that was told to end may say how it does, except that nothing survives SIGKILL.
      if (!instance.end_said || signal == SIGKILL) {
        instance.expected = {};
        instance.expected.signal = signal;
      }
    }
    if (!instance.child.signal(signal)) {
      return {Outcome::How::kHopeless, fmt::format("{} is gone", process)};
    }
    if (signal != SIGSTOP) return {};
    return executor.wait_for([&instance] { return is_stopped(instance.child); }, gone);
  }
};

}  // namespace

Deeds read_signal(StepReader& reader) {
  SignalStep step;
  step.signal = reader.signal("signal").value_or(0);
  step.process = reader.process("to");
  return {{step}};
}

}  // namespace kv::drill
