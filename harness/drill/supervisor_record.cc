#include "harness/drill/supervisor_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "harness/drill/supervisor_launch.h"
#include "harness/process/leftovers.h"
#include "harness/process/stacks.h"

namespace kv::drill {
namespace {

constexpr std::size_t kLastWordsBytes = 400;

// The signal of the crash order that acted on this process, 0 without.
int crashed_by_order(const Instance& instance, const Moments& moments, const Executor& executor) {
  for (const Event& event : moments.events()) {
    if (event.torn || event.kind != EventKind::kActed || event.process != instance.index) continue;
    if (const int signal = executor.crash_signal(event.value)) return signal;
  }
  return 0;
}

// Where a process reported that it crashed, in short. The frames are looked up by name and line,
// unless the crash is what a proof asks for.
std::string crash_of(const Instance& instance, const RecordSources& from) {
  constexpr int kSymbolsLimitMs = 5'000;
  const auto& expected = from.options.expected_failures;
  const bool quick = std::find(expected.begin(), expected.end(), "no_crash") != expected.end();
  for (const Event& event : from.situation.moments().events()) {
    if (event.torn || event.kind != EventKind::kCrash || event.process != instance.index) continue;
    if (quick) return in_short(frames_of(event.text));
    const auto frames = looked_up(event.text, find_addr2line(), kSymbolsLimitMs);
    from.folder.append("stacks.txt", fmt::format("{} ({}) crashed\n\n{}\n", instance.name(),
                                                 instance.child.pid(), in_full(frames)));
    return in_short(frames);
  }
  return {};
}

Record::Ended ended_of(const Instance& instance, const RecordSources& from) {
  Record::Ended ended;
  ended.process = instance.name();
  ended.pid = instance.child.pid();
  ended.end = instance.end;
  ended.expected = instance.expected;
  ended.asked = instance.asked || instance.expected.any;
  ended.ready = instance.ready;
  ended.owes_everything = owes_everything(instance);
  ended.descriptors_left = instance.descriptors_left;
  ended.threads_left = instance.threads_left;
  if (!instance.end_said && !instance.expected.any) {
    if (const int signal = crashed_by_order(instance, from.situation.moments(), from.executor)) {
      ended.asked = true;
      ended.expected.code.reset();
      ended.expected.signal = signal;
    } else if (from.executor.findings().cut_at) {
      // It ended before the drill came to the step that says how.
      const auto& said = from.executor.ahead().ends;
      const auto later = std::find_if(said.begin(), said.end(), [&](const Ahead::End& end) {
        return end.process == instance.name();
      });
      if (later != said.end()) {
        ended.asked = true;
        ended.expected.code = later->code;
        ended.expected.signal = later->signal;
      }
    }
  }
  if (!ended_well(ended)) {
    ended.last_words = last_words(instance.stderr_path, kLastWordsBytes);
    ended.crash = crash_of(instance, from);
  }
  return ended;
}

// Files that nobody is to blame for: those that a process had announced and, ended without a
// chance, could not remove, and those that the drill itself put there.
std::vector<std::string> excused_files(const RecordSources& from) {
  std::vector<std::string> files;
  for (const Instance& instance : from.situation.instances()) {
    const bool owes = owes_everything(instance);
    for (const auto& [name, value] : instance.facts) {
      if (!value.starts_with('/')) continue;
      // Whoever took over the path of a process that died took over its removal.
      std::erase(files, value);
      if (!owes) files.push_back(value);
    }
  }
  for (const auto& [path, file] : from.executor.placed()) {
    if (identify(path) == file) files.push_back(path);  // else it is another's, in its place
  }
  return files;
}

// Below the folder in which the engines run, without what the harness itself has there.
std::vector<std::string> files_left(const RecordSources& from) {
  const std::string& root = from.folder.path();
  auto left = unexcused(root, tree(root), excused_files(from));
  std::set<std::string> outputs;
  for (const Instance& instance : from.situation.instances()) {
    for (const char* stream : {"stdout", "stderr"}) {
      outputs.insert(from.folder.output(instance.name(), instance.time, stream));
    }
  }
  std::erase_if(left, [&](const std::string& entry) {
    const auto slash = entry.find('/');
    const std::string top = entry.substr(0, slash);
    if (top == "s" || top == "m") return slash == entry.size() - 1;
    if (top == "out") return slash == entry.size() - 1 || outputs.count(root + "/" + entry) != 0;
    return from.own_files.count(top) != 0;
  });
  return left;
}

std::vector<std::string> default_left(const RecordSources& from) {
  std::vector<std::string> left;
  for (const auto& [path, file] : default_places(names_of(from.drill, from.folder))) {
    const auto before = from.default_before.find(path);
    if (before == from.default_before.end() || before->second != file) left.push_back(path);
  }
  return left;
}

// The fake card's calls are points; the first of them makes the ledger.
bool used_the_card(const std::vector<Event>& events) {
  return std::any_of(events.begin(), events.end(), [](const Event& event) {
    return event.kind == EventKind::kDone && !event.torn && event.value == 0 &&
           event.name.starts_with("driver.cuInit");
  });
}

}  // namespace

InstanceNames names_of(const Drill& drill, const RunFolder& folder) {
  InstanceNames names{folder.ipc_name(), {}};
  for (const ProcessSpec& process : drill.processes) {
    names.shared.push_back(process.name);
    if (!process.ipc.empty()) names.shared.push_back(process.ipc);
  }
  return names;
}

Record make_record(const RecordSources& from, std::vector<std::string> orphans) {
  from.situation.take_in();
  const Findings& findings = from.executor.findings();
  Record record;
  record.events = from.situation.moments().events();
  record.processes = from.situation.moments().processes();
  record.notes = from.options.notes;
  for (const Instance& instance : from.situation.instances()) {
    record.ended.push_back(ended_of(instance, from));
  }
  record.processes_left = std::move(orphans);
  record.hang = findings.hang;
  record.hang_position = findings.hang_position;
  record.log_allowed = from.executor.ahead().logs;
  record.card_looked_at = from.options.fake_card;
  record.cut_short = findings.cut_at;
  if (record.cut_short) return record;  // what is left then is not judged
  if (from.options.fake_card) {
    if (auto card = read_ledger(from.folder.ledger())) {
      record.card = *std::move(card);
      record.card_lost = record.card.devices.empty() && used_the_card(record.events);
    } else {
      record.card_unreadable = card.error();
    }
  }
  record.files_left = files_left(from);
  record.default_left = default_left(from);
  return record;
}

}  // namespace kv::drill
