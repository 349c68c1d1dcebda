#include "harness/verdict/trace.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

namespace kv::drill {
namespace {

constexpr std::array<std::string_view, 16> kKinds = {
    "point", "done", "note",   "acted", "released", "registered", "thread", "announced",
    "ready", "call", "return", "log",   "crash",    "stack",      "clock",  "drill"};

// Texts of several lines stay on one, so that a trace has one line an event.
std::string one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n') c = '|';
  }
  return line;
}

// The moment in the words of an address where it is one, else name and numbers.
std::string what(const Event& event) {
  switch (event.kind) {
    case EventKind::kPoint:
      return fmt::format("{}[{}]#{}", event.name, event.key, event.value);
    case EventKind::kDone:
      return fmt::format("{}[{}] -> {}", event.name, event.key, event.value);
    case EventKind::kNote:
      return fmt::format("{}[{}] = {}", event.name, event.key, event.value);
    case EventKind::kActed:
    case EventKind::kReleased:
      return fmt::format("{} (order {})", event.name, event.value);
    case EventKind::kCall:
    case EventKind::kReturn:
      return fmt::format("{} (call {}){}", event.name, event.value,
                         event.kind == EventKind::kReturn && event.key == 1 ? " error" : "");
    case EventKind::kLog:
      return event.key == 0 ? "info" : event.key == 1 ? "warning" : "error";
    case EventKind::kRegistered:
    case EventKind::kThread:
    case EventKind::kCrash:
    case EventKind::kClock:
      return fmt::format("{}", event.value);
    case EventKind::kSupervisor:
      return event.key == 0 && event.value == 0
                 ? std::string(event.name)
                 : fmt::format("{}[{}] = {}", event.name, event.key, event.value);
    case EventKind::kAnnounced:
    case EventKind::kReady:
    case EventKind::kStack:
      return std::string(event.name);
  }
  return std::string(event.name);
}

void add_steps(std::string* text, const std::vector<Step>& steps, int depth) {
  int number = 0;
  for (const Step& step : steps) {
    fmt::format_to(std::back_inserter(*text), "{:>{}}{:3}. {}{}\n", "", 4 * depth, ++number,
                   step.text, step.id.empty() ? "" : fmt::format("   ('{}')", step.id));
    add_steps(text, step.body, depth + 1);
  }
}

}  // namespace

std::string_view event_kind_name(EventKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < kKinds.size() ? kKinds[index] : "?";
}

std::string who(const Event& event, const std::vector<ProcessInfo>& processes) {
  if (event.kind == EventKind::kSupervisor) return "drill";
  if (event.process >= processes.size()) return fmt::format("process {}", event.process);
  const ProcessInfo& process = processes[event.process];
  if (event.thread >= process.threads.size()) return process.name;
  const std::string& label = process.threads[event.thread].label;
  if (label.empty()) return fmt::format("{}/thread {}", process.name, event.thread);
  return process.name + "/" + label;
}

std::string trace_text(const std::vector<Event>& events, const std::vector<ProcessInfo>& processes,
                       std::int64_t start_ns) {
  std::string text;
  text.reserve(events.size() * 80);
  for (const Event& event : events) {
    if (event.torn) {
      fmt::format_to(std::back_inserter(text), "{:>5} {:>11}     torn: its writer died\n",
                     event.sequence, "");
      continue;
    }
    const double ms = static_cast<double>(event.time_ns - start_ns) / 1e6;
    fmt::format_to(std::back_inserter(text), "{:>5} {:>11.3f} ms  {:<24} {:<10} {}{}{}\n",
                   event.sequence, ms, who(event, processes), event_kind_name(event.kind),
                   what(event), event.text.empty() ? "" : "  ", one_line(event.text));
  }
  return text;
}

std::string plan_text(const Drill& drill, const std::string& repeat,
                      const std::vector<Address>& skip) {
  std::string text = repeat + "\n\n";
  fmt::format_to(std::back_inserter(text), "{}\n{}:{}\n", drill.full_name(), drill.position.file,
                 drill.position.line);
  for (const Address& step : skip) {
    fmt::format_to(std::back_inserter(text), "without the step {}\n", to_string(step));
  }
  text += "\n";
  for (const ProcessSpec& process : drill.processes) {
    fmt::format_to(std::back_inserter(text), "process {}: role {}, rank {}, stage {}, device {}\n",
                   process.name, process.role, process.rank, process.stage, process.device);
  }
  fmt::format_to(std::back_inserter(text), "clock: {}; deadline of a step: {:.1f} s\n\n",
                 drill.manual_clock ? "moved by the drill" : "real",
                 static_cast<double>(drill.deadline_ns) / 1e9);
  add_steps(&text, drill.steps, 0);
  return text;
}

}  // namespace kv::drill
