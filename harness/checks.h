// The checks that every drill gets without asking, as pure functions of what was recorded: the
// events, how each process ended, what was left. Steps are checked where they are carried out
// (executor.h); here nothing waits and nothing is started, so each check is tested on made-up records.
//
// Threads, ownership: values.
#ifndef HARNESS_CHECKS_H_
#define HARNESS_CHECKS_H_

#include <optional>
#include <string>
#include <vector>

#include "harness/board/board.h"
#include "harness/card_ledger.h"
#include "harness/process.h"
#include "harness/verdict.h"

namespace kv::drill {

// How a process was meant to end, as the drill says.
struct Expected {
  std::string process;
  bool any = false;  // the drill was cut short and killed it: not judged
  std::optional<int> code, signal;
};

// Everything that is known at the end of a run.
struct Record {
  std::vector<Event> events;
  std::vector<ProcessInfo> processes;  // as in Board::processes()
  struct Ended {
    std::string process;
    pid_t pid = 0;
    std::optional<End> end;  // unset: still there when the drill gave up on it
    Expected expected;
    bool gentle = false;  // it ended by itself in an orderly way: it must have given everything back
    std::vector<std::string> descriptors_left;  // at its exit order, against those at ready
    int threads_left = 0;
  };
  std::vector<Ended> ended;
  CardState card;
  std::vector<std::string> files_left;       // below the run's own roots
  std::vector<std::string> default_left;     // in the default places, by IPC name
  std::vector<std::string> processes_left;   // "pid comm" of descendants that had to be killed
  std::optional<std::string> hang;           // why, when a wait or hold ran into its end
  std::vector<std::string> log_allowed;      // texts whose warnings and errors the drill expects
};

// no_dispatch_after_stop, nothing_left, no_crash, no_hang, prompt_exit, clean_logs: in this order,
// each once, passed ones too.
std::vector<CheckResult> default_checks(const Record& record);

// Their names, for the loader and for waivers.
const std::vector<std::string>& default_check_names();

}  // namespace kv::drill

#endif  // HARNESS_CHECKS_H_
