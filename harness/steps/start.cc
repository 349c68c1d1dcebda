// start: begins a process, and waits until it says that it is ready.
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "harness/drill/supervisor_launch.h"
#include "harness/process/output.h"
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

// Starts it, with its outputs caught.
tl::expected<Instance*, std::string> launch(Executor& executor, const ProcessSpec& spec) {
  Situation& situation = executor.situation();
  const RunFolder& folder = executor.folder();
  const int time = situation.starts_of(spec.name) + 1;
  const std::string stderr_path = folder.output(spec.name, time, "stderr");
  auto out = Output::make(folder.output(spec.name, time, "stdout"));
  if (!out) return tl::unexpected(out.error());
  auto err = Output::make(stderr_path);
  if (!err) return tl::unexpected(err.error());
  Launch how = make_launch(executor.drill(), executor.options(), folder, executor.board(), spec);
  how.out = out->writing_end();
  how.err = err->writing_end();
  auto child = kv::drill::start(how);
  if (!child) return tl::unexpected(child.error());
  out->close_writing_end();
  err->close_writing_end();
  Instance& instance = situation.add(Instance(spec, std::move(*child), time));
  instance.stderr_path = stderr_path;
  instance.out = *std::move(out);
  instance.err = *std::move(err);
  const auto& shut_down = executor.ahead().shut_down;
  instance.to_be_looked_at = shut_down.count(spec.name) != 0 || shut_down.count("") != 0;
  return &instance;
}

// Where a process has taken the run's folder apart, that is why; else it is the harness.
Outcome not_started(const RunFolder& folder, const std::string& why) {
  const auto lost = folder.lost();
  if (lost.empty()) return {Outcome::How::kBroken, why};
  return wrong(fmt::format("{}; of the run folder a process of the drill removed or replaced {}",
                           why, fmt::join(lost, ", ")));
}

std::string never_ready(const Instance& instance) {
  return fmt::format("{} {}", instance.name(),
                     instance.index
                         ? "attached, but never said that it is ready (kvdrill_ready())"
                         : "never attached (kvdrill_attach()), nor said that it is ready");
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
    const auto started = launch(executor, *spec);
    if (!started) return not_started(executor.folder(), started.error());
    Instance& instance = **started;
    Outcome outcome =
        executor.wait_for([&instance] { return instance.ready; },
                          [&situation, &instance]() -> std::string {
                            if (instance.lives()) return who_attached_instead(situation, instance);
                            return fmt::format("{} ended by {} before it was ready",
                                               instance.name(), to_string(*instance.end));
                          });
    if (outcome.how == Outcome::How::kHung)
      outcome.why = never_ready(instance) + ": " + outcome.why;
    return outcome;
  }
};

}  // namespace

Deeds read_start(StepReader& reader) {
  return {{StartStep{reader.process("start")}}};
}

}  // namespace kv::drill
