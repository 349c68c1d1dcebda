#include "harness/process/stuck.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <map>
#include <utility>

#include "harness/process/process.h"

namespace kv::drill {
namespace {

// What a thread of the board has said of itself.
struct Said {
  std::string last;
  std::int64_t since_ns = 0;
  std::string held_at;  // empty: it is not held
};

using ThreadKey = std::pair<std::uint16_t, std::uint16_t>;

// The moment of an event in the words of an address; empty when the event is none.
std::string moment_of(const Event& event) {
  switch (event.kind) {
    case EventKind::kPoint:
    case EventKind::kNote:
      return fmt::format("{}[{}]", event.name, event.key);
    case EventKind::kDone:
      return fmt::format("{}[{}]{}", event.name, event.key,
                         event.name.ends_with(".done") ? "" : ".done");
    case EventKind::kCall:
      return fmt::format("call {}", event.name);
    default:
      return {};
  }
}

std::map<ThreadKey, Said> what_threads_said(const std::vector<Event>& events) {
  std::map<ThreadKey, Said> all;
  for (const Event& event : events) {
    if (event.torn) continue;
    const ThreadKey thread{event.process, event.thread};
    if (event.kind == EventKind::kReturn) {
      all.erase(thread);
    } else if (event.kind == EventKind::kReleased) {
      all[thread].held_at.clear();
    } else if (event.kind == EventKind::kActed &&
               (event.text == "hold" || event.text == "freeze")) {
      all[thread].held_at = fmt::format("{}[{}]", event.name, event.key);
    } else if (std::string moment = moment_of(event); !moment.empty()) {
      all[thread].last = std::move(moment);
      all[thread].since_ns = event.time_ns;
    }
  }
  return all;
}

enum Rank { kHeld, kReported, kSilent, kIdle };
Rank rank_of(const Waiter& waiter) {
  if (waiter.held) return kHeld;
  if (!waiter.last.empty()) return kReported;
  return waiter.stopped || waiter.busy ? kSilent : kIdle;
}

// "stopped by SIGTSTP"; of a process that is no child of ours the kernel does not tell the signal.
std::string stopped_by(pid_t pid) {
  siginfo_t info{};
  const bool told =
      ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == pid;
  return told ? "stopped by " + signal_name(info.si_status) : "stopped";
}

// "worker/listener", "worker" for the whole of it, "cat (pid 12)" when the board does not know it.
std::string name_of(const Waiter& waiter) {
  if (waiter.process.empty()) return fmt::format("{} (pid {})", waiter.label, waiter.pid);
  return waiter.stopped && !waiter.held ? waiter.process : waiter.process + "/" + waiter.label;
}

// "is held at vmm.map[0]", "is running", "waits in futex after listener.accepted[1]".
std::string state_of(const Waiter& waiter) {
  const bool is = waiter.held || waiter.stopped || waiter.where == "running";
  std::string text = (is ? "is " : "waits in ") + waiter.where;
  if (!waiter.held && !waiter.stopped && !waiter.last.empty()) text += " after " + waiter.last;
  return text;
}

}  // namespace

std::vector<Waiter> who_waits(const std::vector<ThreadState>& threads,
                              const std::vector<ProcessInfo>& processes,
                              const std::vector<Event>& events) {
  const auto said = what_threads_said(events);
  std::vector<Waiter> waiters;
  for (const ThreadState& thread : threads) {
    Waiter waiter;
    waiter.pid = thread.pid;
    waiter.tid = thread.tid;
    waiter.label = thread.comm;
    waiter.stopped = thread.state == 'T';
    waiter.where = waiter.stopped        ? stopped_by(thread.pid)
                   : thread.state == 'R' ? "running"
                                         : thread.call;
    const bool runs = waiter.where == "running";
    waiter.busy = runs || (thread.timed && !waiter.stopped);
    if (waiter.busy && !runs) waiter.where += " (with a limit)";
    for (std::uint16_t p = 0; p < processes.size(); ++p) {
      if (processes[p].pid != thread.pid) continue;
      waiter.process = processes[p].name;
      for (std::uint16_t t = 0; t < processes[p].threads.size(); ++t) {
        const ThreadInfo& known = processes[p].threads[t];
        if (known.tid != thread.tid) continue;
        if (!known.label.empty()) waiter.label = known.label;
        const auto found = said.find({p, t});
        if (found == said.end()) continue;
        waiter.last = found->second.last;
        waiter.since_ns = found->second.since_ns;
        if (found->second.held_at.empty()) continue;
        waiter.held = true;
        waiter.where = "held at " + found->second.held_at;
        waiter.whom = "the drill";
      }
    }
    waiters.push_back(std::move(waiter));
  }
  std::stable_sort(waiters.begin(), waiters.end(),
                   [](const Waiter& a, const Waiter& b) { return rank_of(a) < rank_of(b); });
  return waiters;
}

std::string in_short(const std::vector<Waiter>& waiters) {
  constexpr std::size_t kShown = 4;
  std::string text;
  std::size_t known = 0;
  std::set<pid_t> stopped;
  for (const Waiter& waiter : waiters) {
    if (rank_of(waiter) == kIdle) continue;
    // All threads of a process stop at once; a frozen one has its words already.
    if (waiter.stopped && !stopped.insert(waiter.pid).second) continue;
    if (++known > kShown) continue;
    if (known > 1) text += "; ";
    text += name_of(waiter) + " " + state_of(waiter);
  }
  if (known > kShown) text += fmt::format("; and {} more", known - kShown);
  if (known == 0) {
    text = waiters.empty() ? "no process lives" : "every thread is idle";
  }
  return text;
}

std::string as_table(const std::vector<Waiter>& waiters, std::int64_t now_ns) {
  std::string text = fmt::format("{:<28} {:>8}  {:<30} {:<34} {:>12}  {}\n", "process/thread",
                                 "tid", "waits in", "last moment", "since", "for");
  for (const Waiter& waiter : waiters) {
    const std::string since =
        waiter.since_ns == 0
            ? "-"
            : fmt::format("{:.3f} ms", static_cast<double>(now_ns - waiter.since_ns) / 1e6);
    fmt::format_to(std::back_inserter(text), "{:<28} {:>8}  {:<30} {:<34} {:>12}  {}\n",
                   waiter.process + "/" + waiter.label, waiter.tid, waiter.where,
                   waiter.last.empty() ? "-" : waiter.last, since,
                   waiter.whom.empty() ? "-" : waiter.whom);
  }
  return text;
}

}  // namespace kv::drill
