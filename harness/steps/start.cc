// start: begins a process, and waits until it says that it is ready.
#include <algorithm>
#include <utility>

#include "harness/drill/supervisor_launch.h"
#include "harness/process/leftovers.h"
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

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

struct StartStep {
  std::string process;

  std::string text() const { return "start " + process; }
  bool carries_all() const { return true; }

  void check(Flow& flow) const {
    using Process = Flow::Process;
    const Flow::ProcessState& state = flow.process(process);
    if (state.state != Process::kNew && state.state != Process::kEnded) {
      const char* what = state.state == Process::kAlive  ? "started"
                         : state.state == Process::kTold ? "told to end"
                                                         : "killed";
      flow.refuse("start", fmt::format("{} was {} in line {} and has not ended, expected {} before",
                                       process, what, state.line,
                                       state.state == Process::kAlive ? "exit or ended" : "ended"));
    }
    flow.start(process);
  }

  Outcome carry_out(Executor& executor) const {
    Situation& situation = executor.situation();
    const auto& specs = executor.drill().processes;
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [this](const ProcessSpec& one) { return one.name == process; });
    if (spec == specs.end()) {
      return {Outcome::How::kBroken, fmt::format("there is no process '{}'", process)};
    }
    const Instance* running = situation.find(process);
    if (running != nullptr && running->lives()) {
      return wrong(fmt::format("{} runs already", process));
    }
    const int time = situation.starts_of(process) + 1;
    const Launch launch = make_launch(executor.drill(), executor.options(), executor.folder(),
                                      executor.board(), *spec, time);
    auto child = kv::drill::start(launch);
    if (!child) return {Outcome::How::kBroken, child.error()};
    Instance& instance = situation.add(Instance(*spec, std::move(*child), time));
    instance.stderr_path = launch.stderr_path;
    Outcome outcome =
        executor.wait_for([&instance] { return instance.ready; },
                          [&situation, &instance]() -> std::string {
                            if (instance.lives()) return who_attached_instead(situation, instance);
                            return fmt::format("{} ended by {} before it was ready",
                                               instance.name(), to_string(*instance.end));
                          });
    const auto& shut_down = executor.ahead().shut_down;
    if (outcome.how == Outcome::How::kDone &&
        (shut_down.count(process) != 0 || shut_down.count("") != 0)) {
      instance.descriptors_at_ready = open_descriptors(instance.child.pid());
      instance.threads_at_ready = thread_count(instance.child.pid());
    }
    return outcome;
  }
};

}  // namespace

Deeds read_start(StepReader& reader) {
  return {{StartStep{reader.process("start")}}};
}

}  // namespace kv::drill
