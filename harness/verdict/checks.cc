#include "harness/verdict/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include "harness/process/stacks.h"

namespace kv::drill {
namespace {

const std::string& name_at(const Record& record, std::uint16_t index) {
  static const std::string kUnknown = "an unknown process";
  return index < record.processes.size() ? record.processes[index].name : kUnknown;
}

// "worker", or "worker (pid 12)" when several processes of that name were run.
std::string naming(const Record& record, const Record::Ended& ended) {
  const auto same = std::count_if(
      record.ended.begin(), record.ended.end(),
      [&ended](const Record::Ended& other) { return other.process == ended.process; });
  return same > 1 ? fmt::format("{} (pid {})", ended.process, ended.pid) : ended.process;
}

// At most five of them, and how many more there are.
std::string some(const std::vector<std::string>& entries) {
  constexpr std::size_t kShown = 5;
  const auto shown = std::min(entries.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(entries.begin(), entries.begin() + shown, ", "));
  if (entries.size() > kShown) text += fmt::format(" and {} more", entries.size() - kShown);
  return text;
}

std::string plural(std::uint64_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

CheckResult passed(std::string name, std::string why = {}) {
  return {std::move(name), Verdict::kPass, std::move(why), {}};
}
CheckResult failed(std::string name, std::string why) {
  return {std::move(name), Verdict::kFail, std::move(why), {}};
}
CheckResult cut_short(std::string name) {
  return {std::move(name), Verdict::kNotJudged, "the drill was cut short", {}};
}

// Why a check cannot be judged that reads these notes of the engine; empty: it can.
std::string why_without(const Record& record, const std::vector<std::string>& needed) {
  std::vector<std::string> missing;
  for (const std::string& note : needed) {
    const auto& known = record.notes;
    if (std::find(known.begin(), known.end(), note) == known.end()) missing.push_back(note);
  }
  return missing.empty() ? std::string()
                         : fmt::format("the engine makes no note {}", fmt::join(missing, ", "));
}

// What one listener generation of one process has done so far.
struct Stop {
  bool cut = false;
  std::uint64_t cut_at = 0;
  std::uint64_t running = 0;  // dispatched, not ended
  std::string_view last_command;
};

// Follows one note; a violation of the stop rule in words, empty otherwise.
std::string follow(const Event& event, const std::string& process, Stop* stop) {
  if (event.name == "listener.cut") {
    if (!stop->cut) stop->cut_at = event.sequence;
    stop->cut = true;
  } else if (event.name == "listener.dispatch") {
    ++stop->running;
    stop->last_command = event.text;
    if (stop->cut) {
      return fmt::format("{}: listener {} dispatched '{}' (event {}) after it was cut (event {})",
                         process, event.key, event.text, event.sequence, stop->cut_at);
    }
  } else if (event.name == "listener.handler.end") {
    if (stop->running > 0) --stop->running;
  } else if (event.name == "listener.stop.return" && event.value == 0 && !stop->cut) {
    stop->cut = true;  // from here on a dispatch breaks the promise, cut or not
    stop->cut_at = event.sequence;
    return fmt::format("{}: a stop of listener {} said done (event {}) and there was no cut before",
                       process, event.key, event.sequence);
  } else if (event.name == "listener.stop.return" && event.value == 0 && stop->running > 0) {
    return fmt::format("{}: a stop of listener {} said done (event {}) while {} running, '{}' last",
                       process, event.key, event.sequence,
                       plural(stop->running, "handler") + (stop->running == 1 ? " was" : " were"),
                       stop->last_command);
  }
  return {};
}

CheckResult no_dispatch_after_stop(const Record& record) {
  const std::string name = "no_dispatch_after_stop";
  const std::string why_not = why_without(record, {"listener.cut", "listener.dispatch",
                                                   "listener.handler.end", "listener.stop.return"});
  if (!why_not.empty()) return {name, Verdict::kNotJudged, why_not, {}};
  std::map<std::pair<std::uint16_t, std::int64_t>, Stop> stops;
  std::uint64_t torn = 0;
  std::string first;
  std::uint64_t violations = 0;
  for (const Event& event : record.events) {
    if (event.torn) {
      ++torn;
      continue;
    }
    if (event.kind != EventKind::kNote || !event.name.starts_with("listener.")) continue;
    std::string why =
        follow(event, name_at(record, event.process), &stops[{event.process, event.key}]);
    if (why.empty()) continue;
    if (++violations == 1) first = std::move(why);
  }
  const std::string remark =
      torn == 0
          ? ""
          : fmt::format("{} torn: the writer died while writing, and what it said is not known",
                        plural(torn, "event") + (torn == 1 ? " is" : " are"));
  if (violations == 0) return passed(name, remark);
  if (violations > 1) first += fmt::format(", and {} more", violations - 1);
  if (torn > 0) first += "; " + remark;
  return failed(name, std::move(first));
}

void add_count(std::vector<std::string>* parts, std::uint64_t count, std::string_view word) {
  if (count > 0) parts->push_back(plural(count, word));
}

// "12 bytes, 1 handle"; empty when it holds nothing.
std::string amounts(const Holding& held) {
  std::vector<std::string> parts;
  add_count(&parts, held.bytes, "byte");
  add_count(&parts, held.handles, "handle");
  add_count(&parts, held.mappings, "mapping");
  add_count(&parts, held.reservations, "reservation");
  add_count(&parts, held.allocations, "allocation");
  add_count(&parts, held.contexts, "context");
  return fmt::format("{}", fmt::join(parts, ", "));
}

const Record::Ended* ended_of(const Record& record, pid_t pid) {
  const auto found = std::find_if(record.ended.begin(), record.ended.end(),
                                  [pid](const Record::Ended& ended) { return ended.pid == pid; });
  return found == record.ended.end() ? nullptr : &*found;
}

// "worker.fork-1 (pid 12), a child of worker": of a process that the drill did not start itself.
std::string naming_child(const Record& record, pid_t pid, std::string_view otherwise) {
  const auto known = std::find_if(record.processes.begin(), record.processes.end(),
                                  [pid](const ProcessInfo& one) { return one.pid == pid; });
  if (known == record.processes.end()) {
    return otherwise.empty() ? fmt::format("a child (pid {})", pid)
                             : fmt::format("a child of {} (pid {})", otherwise, pid);
  }
  auto parent = known->name.rfind(".fork-");
  if (parent == std::string::npos) parent = known->name.rfind(".child-");
  if (parent == std::string::npos) return fmt::format("{} (pid {})", known->name, pid);
  return fmt::format("{} (pid {}), a child of {}", known->name, pid, known->name.substr(0, parent));
}

void card_left(const Record& record, std::vector<std::string>* parts) {
  bool all_owe = true;
  for (const Holding& held : record.card.owners) {
    const Record::Ended* ended = ended_of(record, held.pid);
    if (ended != nullptr && !ended->owes_everything) all_owe = false;
    // What is exported lives as long as a descriptor does; when the last one was closed the ledger
    // does not say until somebody uses the card again.
    if (held.exports > 0) all_owe = false;
    const std::string what = amounts(held);
    if (what.empty() || (ended != nullptr && !ended->owes_everything)) continue;
    parts->push_back(fmt::format(
        "{} ended holding {} of the card",
        ended != nullptr ? naming(record, *ended) : naming_child(record, held.pid, held.process),
        what));
  }
  // The dead give back when the card is next used, so their part may still be counted.
  if (!all_owe || !parts->empty()) return;
  for (std::size_t i = 0; i < record.card.devices.size(); ++i) {
    const std::uint64_t used = record.card.devices[i].used_bytes;
    if (used == 0) continue;
    parts->push_back(
        fmt::format("device {} has {} in use that no process held", i, plural(used, "byte")));
  }
}

CheckResult nothing_left(const Record& record) {
  const std::string name = "nothing_left";
  if (record.cut_short) return cut_short(name);
  std::vector<std::string> parts;
  if (!record.card_unreadable.empty()) {
    return {
        name, Verdict::kError, "the card's ledger cannot be read: " + record.card_unreadable, {}};
  }
  card_left(record, &parts);
  if (record.card_lost) parts.push_back("the card was used, and its ledger was removed");
  for (const Record::Ended& ended : record.ended) {
    if (!ended.descriptors_left.empty()) {
      parts.push_back(fmt::format("{} kept open after its shutdown: {}", naming(record, ended),
                                  some(ended.descriptors_left)));
    }
    if (!ended.threads_left.empty()) {
      parts.push_back(fmt::format("{} kept {} after its shutdown: {}", naming(record, ended),
                                  plural(ended.threads_left.size(), "thread"),
                                  some(ended.threads_left)));
    }
  }
  if (!record.files_left.empty()) {
    parts.push_back("left below the run: " + some(record.files_left));
  }
  if (!record.default_left.empty()) {
    parts.push_back("left in the default places: " + some(record.default_left));
  }
  if (!record.processes_left.empty()) {
    parts.push_back("processes had to be killed: " + some(record.processes_left));
  }
  if (!parts.empty()) return failed(name, fmt::format("{}", fmt::join(parts, "; ")));
  return passed(name, record.card_looked_at ? "" : "card not looked at: its driver has no ledger");
}

std::string at_frames(const std::string& frames) {
  return frames.empty() ? std::string() : ", at" + frames;
}

// By code or signal as expected, asked for or not.
bool as_said(const Record::Ended& ended) {
  return ended.end && as_said(*ended.end, ended.expected);
}

std::string wrong_end(const Record& record, const Record::Ended& ended) {
  if (!ended.end) return naming(record, ended) + " is still there: not even SIGKILL ended it";
  if (ended_well(ended)) return {};
  const bool right = as_said(ended);
  std::string why = fmt::format("{} ended by {}", naming(record, ended), to_string(*ended.end));
  if (!right) why += ", expected " + to_string(ended.expected);
  if (!ended.asked) {
    why += ended.ready ? ", before the drill told it to" : ", before it was ready";
  }
  why += at_frames(ended.crash);
  if (!ended.last_words.empty()) {
    why += ended.crash.empty() ? "; " : "\n";
    why += fmt::format("its last words: '{}'", ended.last_words);
  }
  return why;
}

CheckResult no_crash(const Record& record) {
  std::vector<std::string> parts;
  for (const Record::Ended& ended : record.ended) {
    if (std::string why = wrong_end(record, ended); !why.empty()) parts.push_back(std::move(why));
  }
  for (const Event& event : record.events) {
    if (event.torn || event.kind != EventKind::kCrash) continue;
    if (record.cut_short && event.sequence >= *record.cut_short) break;
    const pid_t pid =
        event.process < record.processes.size() ? record.processes[event.process].pid : 0;
    if (ended_of(record, pid) != nullptr) continue;
    parts.push_back(fmt::format("{} crashed by {}{}", naming_child(record, pid, {}),
                                signal_name(static_cast<int>(event.value)),
                                at_frames(in_short(frames_of(event.text)))));
  }
  if (parts.empty()) return passed("no_crash");
  return failed("no_crash", fmt::format("{}", fmt::join(parts, "; ")));
}

CheckResult no_hang(const Record& record) {
  if (!record.hang) return passed("no_hang");
  CheckResult result = failed("no_hang", *record.hang);
  result.position = record.hang_position;
  return result;
}

CheckResult prompt_exit(const Record& record) {
  const std::string name = "prompt_exit";
  if (const std::string why_not = why_without(record, {kExpiredNote}); !why_not.empty()) {
    return {name, Verdict::kNotJudged, why_not, {}};
  }
  if (record.cut_short) return cut_short(name);
  bool moved = false;
  std::string first;
  std::uint64_t expired = 0;
  for (const Event& event : record.events) {
    if (event.torn) continue;
    if (event.kind == EventKind::kSupervisor && event.name == kAdvanceEvent) moved = true;
    if (moved || event.kind != EventKind::kNote || event.name != kExpiredNote) continue;
    if (++expired > 1) continue;
    first =
        fmt::format("{}: the wait '{}' ran out (event {}) and the drill had not moved the clock",
                    name_at(record, event.process), event.text, event.sequence);
  }
  if (expired == 0) return passed(name);
  if (expired > 1) first += fmt::format(", and {} more", expired - 1);
  return failed(name, std::move(first));
}

CheckResult clean_logs(const Record& record) {
  std::string first;
  std::uint64_t lines = 0;
  for (const Event& event : record.events) {
    if (event.torn || event.kind != EventKind::kLog || event.key < 1) continue;
    if (record.cut_short && event.sequence >= *record.cut_short) break;
    const bool allowed = std::any_of(
        record.log_allowed.begin(), record.log_allowed.end(), [&](const AllowedLog& one) {
          return event.text.find(one.text) != std::string_view::npos &&
                 (one.process.empty() || one.process == name_at(record, event.process));
        });
    if (allowed || ++lines > 1) continue;
    first = fmt::format("{} logged {}: '{}'", name_at(record, event.process),
                        event.key == 1 ? "a warning" : "an error", event.text);
  }
  if (lines == 0) return passed("clean_logs");
  if (lines > 1) first += fmt::format(", and {} more", lines - 1);
  return failed("clean_logs", std::move(first));
}

}  // namespace

std::vector<CheckResult> default_checks(const Record& record) {
  return {no_dispatch_after_stop(record),
          nothing_left(record),
          no_crash(record),
          no_hang(record),
          prompt_exit(record),
          clean_logs(record)};
}

const std::vector<std::string>& default_check_names() {
  static const std::vector<std::string> names = {
      "no_dispatch_after_stop", "nothing_left", "no_crash", "no_hang", "prompt_exit", "clean_logs"};
  return names;
}

bool as_said(const End& end, const Expected& expected) {
  if (end.unknown) return false;
  if (end.by_signal) return expected.signal && end.value == *expected.signal;
  return !expected.signal && end.value == expected.code.value_or(0);
}

std::string to_string(const Expected& expected) {
  return expected.signal ? signal_name(*expected.signal)
                         : fmt::format("exit code {}", expected.code.value_or(0));
}

bool ended_well(const Record::Ended& ended) {
  return ended.end && (ended.expected.any || (ended.asked && as_said(ended)));
}

std::vector<std::string> unexcused(const std::string& root, const std::vector<std::string>& left,
                                   const std::vector<std::string>& excused) {
  std::vector<std::string> rest;
  for (const std::string& entry : left) {
    const std::string path = root + "/" + entry;
    const bool fine = std::any_of(excused.begin(), excused.end(), [&path](const auto& known) {
      if (path.ends_with('/')) {
        return known.starts_with(path) || known + "/" == path;
      }
      return known == path;
    });
    if (!fine) rest.push_back(entry);
  }
  return rest;
}

}  // namespace kv::drill
