// start: begins a process, and waits until it says that it is ready; or, where it must fail, until
// it has ended instead.
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
  bool fails = false;       // it must end instead of becoming ready ...
  std::optional<int> code;  // ... with this exit code; unset: any but 0
  std::string part = {};    // ... and its standard error holds this

  std::string text() const {
    std::string text = "start " + process;
    if (fails) text += code ? fmt::format(", which fails with code {}", *code) : ", which fails";
    if (!part.empty()) text += fmt::format(", saying \"{}\"", part);
    return text;
  }
  bool carries_all() const { return !fails; }
  void foretell(Ahead& ahead) const {
    if (!part.empty()) ahead.logs.push_back({process, part});
  }

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
    if (fails) flow.process(process).state = Process::kEnded;
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
    instance.meant_to_fail = fails;
    if (fails) return wait_for_failure(executor, instance);
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

  Outcome wait_for_failure(Executor& executor, Instance& instance) const {
    const Outcome outcome =
        executor.wait_for([&instance] { return instance.ready || !instance.lives(); },
                          [&] { return who_attached_instead(executor.situation(), instance); });
    if (outcome.how != Outcome::How::kDone) return outcome;
    const std::string wanted = code ? fmt::format("exit code {}", *code) : "an exit code but 0";
    if (instance.lives()) {
      return wrong(
          fmt::format("{} became ready, expected its start to fail by {}", process, wanted));
    }
    // It ended by itself and in order: what it had made is its own to give back.
    instance.asked = instance.end_said = instance.gentle = true;
    instance.expected.code = code;
    const End& end = *instance.end;
    const bool failed = !end.by_signal && !end.unknown && end.value != 0;
    if (!code && failed) instance.expected.code = end.value;
    if (instance.ready || !failed || !as_said(end, instance.expected)) {
      return wrong(fmt::format("{} ended by {}{}, expected its start to fail by {}", process,
                               to_string(end), instance.ready ? " when it was ready" : "", wanted));
    }
    const auto said = read_output(instance.stderr_path);
    if (!said) return {Outcome::How::kBroken, said.error()};
    if (said->find(part) != std::string::npos) return {};
    return wrong(fmt::format("the standard error of {} does not hold '{}': {}", process, part,
                             words_of(instance)));
  }
};

}  // namespace

Deeds read_start(StepReader& reader) {
  StartStep step;
  step.process = reader.process("start");
  step.fails = reader.fields.boolean("fails").value_or(false);
  if (step.fails) {
    step.code = reader.exit_code("code");
    if (step.code == 0) {
      reader.faults.add(*reader.fields.find("code"),
                        "code = 0, which is no failure, expected 1 to 255");
    }
    step.part = reader.fields.text("text").value_or("");
  }
  return {{std::move(step)}};
}

}  // namespace kv::drill
