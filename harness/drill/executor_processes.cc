// Steps about processes and the calls made in them.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <iterator>
#include <utility>

#include "harness/drill/executor.h"
#include "harness/process/leftovers.h"
#include "harness/drill/supervisor_launch.h"

namespace kv::drill {
namespace {

using How = Outcome::How;

// Whether a process that does nothing about it dies by this signal.
bool ends_a_process(int signal) {
  constexpr std::array<int, 8> kHarmless = {SIGSTOP, SIGTSTP, SIGTTIN,  SIGTTOU,
                                            SIGCONT, SIGCHLD, SIGWINCH, SIGURG};
  return std::find(kHarmless.begin(), kHarmless.end(), signal) == kHarmless.end();
}

bool calls_shutdown(const std::vector<Step>& steps, const std::string& process) {
  return std::any_of(steps.begin(), steps.end(), [&process](const Step& step) {
    if (const auto* repeat = std::get_if<RepeatStep>(&step.deed)) {
      return calls_shutdown(repeat->steps, process);
    }
    if (const auto* call = std::get_if<CallStep>(&step.deed)) {
      return call->process == process && call->command == kShutdownCommand;
    }
    const auto* run = std::get_if<GiveStep>(&step.deed);
    return run != nullptr && run->what == GiveStep::What::kRun &&
           run->command == kShutdownCommand &&
           (run->at.process.empty() || run->at.process == process);
  });
}

// A program that starts the engine as a child of its own cannot be watched, told to end or judged
// in its place.
std::string who_attached_instead(Situation& situation, const Instance& instance) {
  const auto& started = situation.instances();
  for (const ProcessInfo& process : situation.moments().processes()) {
    if (process.name != instance.name()) continue;
    const bool ours = std::any_of(started.begin(), started.end(), [&process](const Instance& one) {
      return one.child.pid() == process.pid;
    });
    if (ours) continue;
    return fmt::format(
        "another process (pid {}) attached as {} than the one that was started (pid {}): a program "
        "around an engine must `exec` the engine",
        process.pid, instance.name(), instance.child.pid());
  }
  return {};
}

bool is_stopped(const Child& child) {
  siginfo_t info{};
  return ::waitid(P_PIDFD, static_cast<id_t>(child.pidfd()), &info, WSTOPPED | WNOHANG | WNOWAIT) ==
             0 &&
         info.si_pid != 0;
}

}  // namespace

Outcome Executor::carry_out(const StartStep& step) {
  const auto spec =
      std::find_if(drill_.processes.begin(), drill_.processes.end(),
                   [&step](const ProcessSpec& one) { return one.name == step.process; });
  if (spec == drill_.processes.end()) {
    return {How::kBroken, fmt::format("there is no process '{}'", step.process)};
  }
  if (const Instance* running = situation_.find(step.process)) {
    if (running->lives()) return {How::kWrong, fmt::format("{} runs already", step.process)};
  }
  const int time = situation_.starts_of(step.process) + 1;
  const Launch launch = make_launch(drill_, options_, folder_, board_, *spec, time);
  auto child = start(launch);
  if (!child) return {How::kBroken, child.error()};
  Instance& instance = situation_.add(Instance(*spec, std::move(*child), time));
  instance.stderr_path = launch.stderr_path;
  Outcome outcome = wait_for([&instance] { return instance.ready; },
                             [this, &instance]() -> std::string {
                               if (instance.lives())
                                 return who_attached_instead(situation_, instance);
                               return fmt::format("{} ended by {} before it was ready",
                                                  instance.name(), to_string(*instance.end));
                             });
  if (outcome.how == How::kDone && calls_shutdown(drill_.steps, step.process)) {
    instance.descriptors_at_ready = open_descriptors(instance.child.pid());
    instance.threads_at_ready = thread_count(instance.child.pid());
  }
  return outcome;
}

std::string Executor::nobody_left(const std::string& process) {
  if (process.empty()) {
    for (const Instance& instance : situation_.instances()) {
      if (instance.lives()) return {};
    }
    const std::string death = first_death(process);
    return (death.empty() ? "" : death + ", and ") + "no process lives any more";
  }
  const Instance* instance = situation_.find(process);
  if (instance == nullptr) return process + " was not started";
  if (instance->lives()) return {};
  return fmt::format("{} {} by {} before this step was done", process,
                     instance->end->by_signal ? "died" : "ended", to_string(*instance->end));
}

std::string Executor::first_death(const std::string& process) {
  const Instance* first = nullptr;
  for (const Instance& instance : situation_.instances()) {
    if (!process.empty() && instance.name() != process) continue;
    if (!instance.end || !instance.end->by_signal || instance.expected.any) continue;
    if (first == nullptr || instance.ended_at < first->ended_at) first = &instance;
  }
  if (first == nullptr) return {};
  return fmt::format("{} died by {}", first->name(), to_string(*first->end));
}

Outcome Executor::carry_out(const SignalStep& step) {
  situation_.take_in();
  if (std::string why = nobody_left(step.process); !why.empty()) return {How::kHopeless, why};
  Instance& instance = *situation_.find(step.process);
  if (ends_a_process(step.signal)) {
    look_at_what_it_kept(instance);
    instance.asked = true;
    // A process that was told to end may say how it does, except that nothing survives SIGKILL.
    if (!instance.end_said || step.signal == SIGKILL) {
      instance.expected = {};
      instance.expected.signal = step.signal;
    }
  }
  if (!instance.child.signal(step.signal)) {
    return {How::kHopeless, fmt::format("{} is gone", step.process)};
  }
  if (step.signal != SIGSTOP) return {};
  return wait_for([&instance] { return is_stopped(instance.child); },
                  [this, &step] { return nobody_left(step.process); });
}

Outcome Executor::carry_out(const ExitStep& step) {
  situation_.take_in();
  if (std::string why = nobody_left(step.process); !why.empty()) return {How::kHopeless, why};
  Instance& instance = *situation_.find(step.process);
  if (!tell_to_end(instance, step.how, step.code)) {
    return {How::kBroken, fmt::format("{} cannot be told to end", step.process)};
  }
  return step.wait ? wait_for_end(instance) : Outcome{};
}

Outcome Executor::wait_for_end(const Instance& instance) {
  Outcome outcome = wait_for([&instance] { return !instance.lives(); });
  if (outcome.how != How::kDone || step_->id.empty() || !instance.end_said) return outcome;
  if (as_said(*instance.end, instance.expected)) return outcome;
  return {How::kWrong, fmt::format("{} ended by {}, expected {}", instance.name(),
                                   to_string(*instance.end), to_string(instance.expected))};
}

bool Executor::tell_to_end(Instance& instance, const std::string& how, int code) {
  look_at_what_it_kept(instance);
  if (!instance.lives()) return true;
  instance.asked = true;
  instance.end_said = true;
  instance.expected = {};
  if (how == "abort") {
    instance.expected.signal = SIGABRT;
  } else {
    instance.expected.code = code;
  }
  instance.gentle = how == "return" || how == "exit";
  return board_.tell_exit(instance.name(), how, code);
}

// After a shutdown that was done nothing of the engine may remain that was not there when it was
// ready. Threads take a moment to be gone; whatever is there when nobody moves any more stays.
void Executor::look_at_what_it_kept(Instance& instance) {
  if (!instance.descriptors_at_ready || !instance.shut_down) return;
  const pid_t pid = instance.child.pid();
  std::vector<std::string> kept;
  int threads = 0;
  const auto look_again = [&] {
    kept = open_descriptors(pid);
    const auto& before = *instance.descriptors_at_ready;
    std::erase_if(kept, [&before](const std::string& line) {
      return std::find(before.begin(), before.end(), line) != before.end();
    });
    threads = std::max(0, thread_count(pid) - instance.threads_at_ready);
    return (kept.empty() && threads == 0) || !instance.lives();
  };
  if (situation_.wait({look_again, nullptr, limit_ns(), 1}).how == WaitEnd::kMet) return;
  instance.descriptors_left = std::move(kept);
  instance.threads_left = threads;
}

Outcome Executor::carry_out(const EndedStep& step) {
  Instance* instance = situation_.find(step.process);
  if (instance == nullptr) {
    return {How::kWrong, fmt::format("{} was not started", step.process)};
  }
  instance->asked = true;
  if (step.code || step.signal) {
    instance->end_said = true;
    instance->expected = {};
    instance->expected.code = step.code;
    instance->expected.signal = step.signal;
  }
  return wait_for_end(*instance);
}

Outcome Executor::carry_out(const CallStep& step) {
  ScriptedCall call;
  call.name = step.as;
  call.process = step.process;
  call.command = step.command;
  const std::uint32_t id = situation_.add_call(std::move(call));
  ScriptedCall& made = *situation_.find_call(step.as);
  situation_.take_in();
  if (std::string why = nobody_left(step.process); !why.empty()) return {How::kHopeless, why};
  made.delivered = board_.call(step.process, step.command, to_json(step.arguments), step.as, id);
  if (!made.delivered) {
    return {How::kWrong,
            fmt::format("{} takes no call: it serves none, or its mailbox is full", step.process)};
  }
  // A stopped process takes it when it goes on: that nobody moves is no failure of the call.
  const Waited waited =
      situation_.wait({[&made] { return made.begun; },
                       [this, &step] { return nobody_left(step.process); }, limit_ns(), 4});
  return waited.how == WaitEnd::kStuck ? Outcome{} : of_wait(waited);
}

Outcome Executor::carry_out(const ReturnsStep& step) {
  ScriptedCall* call = situation_.find_call(step.as);
  if (call == nullptr || !call->delivered) return {How::kNotJudged, {}};
  Outcome outcome = wait_for([call] { return call->returned; },
                             [this, call] { return nobody_left(call->process); });
  if (outcome.how != How::kDone) return outcome;
  const std::string got = call->failed ? fmt::format("the error '{}'", call->answer)
                                       : fmt::format("'{}'", call->answer);
  if (step.value) {
    const bool same = call->failed ? *step.value == "error" : *step.value == call->answer;
    if (!same)
      return {How::kWrong, fmt::format("{} returned {}, expected '{}'", step.as, got, *step.value)};
  } else if (call->failed && step.text.empty()) {
    return {How::kWrong, fmt::format("{} returned {}", step.as, got)};
  }
  if (call->answer.find(step.text) == std::string::npos) {
    return {How::kWrong,
            fmt::format("{} returned {}, expected '{}' in it", step.as, got, step.text)};
  }
  return {};
}

Outcome Executor::carry_out(const PendingStep& step) {
  ScriptedCall* call = situation_.find_call(step.as);
  if (call == nullptr || !call->delivered) return {How::kNotJudged, {}};
  const Waited waited =
      situation_.wait({[call] { return call->returned; },
                       [this, call] { return nobody_left(call->process); }, limit_ns(), 1});
  switch (waited.how) {
    case WaitEnd::kStuck:
      return {};
    case WaitEnd::kMet:
      return {How::kWrong, fmt::format("{} has returned {}'{}'", step.as,
                                       call->failed ? "the error " : "", call->answer)};
    case WaitEnd::kDeadline:
      return {How::kVoid, fmt::format("whether {} can still return could not be told within {:.3g} "
                                      "s: somebody kept moving",
                                      step.as, static_cast<double>(limit_ns()) / 1e9)};
    default:
      return of_wait(waited);
  }
}

Outcome Executor::carry_out(const AdvanceStep& step) {
  const std::int64_t time = board_.clock_now() + step.ns;
  board_.record(kAdvanceEvent, 0, step.ns, {});
  board_.set_clock(time);
  return wait_for([this, time] {
    const auto& all = situation_.instances();
    return std::all_of(all.begin(), all.end(), [time](const Instance& instance) {
      return !instance.lives() || !instance.ready || instance.clock >= time;
    });
  });
}

void Executor::end_gently() {
  step_ = nullptr;
  for (const Given& given : given_) {
    if (given.step.what == GiveStep::What::kHold || given.step.what == GiveStep::What::kFreeze) {
      board_.release(given.id);
    }
  }
  situation_.take_in();
  for (Instance& instance : situation_.instances()) {
    if (!instance.lives()) continue;
    instance.child.signal(SIGCONT);  // a `signal` step may have stopped it
    if (!instance.asked) tell_to_end(instance, "return", 0);
  }
  const Outcome outcome = wait_for([this] {
    const auto& all = situation_.instances();
    return std::none_of(all.begin(), all.end(), [](const Instance& one) { return one.lives(); });
  });
  if (outcome.how == How::kInterrupted) findings_.interrupted = true;
  if (outcome.how == How::kHung) {
    std::string names;
    for (const Instance& instance : situation_.instances()) {
      if (instance.lives()) names += (names.empty() ? "" : ", ") + instance.name();
    }
    hang(fmt::format("{} did not end when told to: {}", names, outcome.why), drill_.position);
  }
}

}  // namespace kv::drill
