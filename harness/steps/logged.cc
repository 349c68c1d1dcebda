// logged: waits for a line of the engine's log that holds the text.
#include <algorithm>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct LoggedStep {
  std::string process, part;

  std::string text() const { return fmt::format("logged \"{}\" in {}", part, process); }
  bool only_looks() const { return true; }
  void foretell(Ahead& ahead) const { ahead.logs.push_back({process, part}); }
  void check(Flow& flow) const { flow.was_started(process, flow.key_or("in", "logged")); }

  bool is(const Event& event, const std::vector<ProcessInfo>& processes) const {
    if (event.kind != EventKind::kLog || event.torn) return false;
    if (event.text.find(part) == std::string_view::npos) return false;
    return event.process < processes.size() && processes[event.process].name == process;
  }

  Outcome carry_out(Executor& executor) const {
    const Moments& moments = executor.moments();
    return executor.wait_for(
        [&] {
          return std::any_of(moments.events().begin(), moments.events().end(),
                             [&](const Event& event) { return is(event, moments.processes()); });
        },
        [&] { return executor.nobody_left(process); });
  }
};

}  // namespace

Deeds read_logged(StepReader& reader) {
  LoggedStep step;
  step.part = reader.fields.required_text("logged", "a part of the line").value_or("");
  step.process = reader.in();
  return {{step}};
}

}  // namespace kv::drill
