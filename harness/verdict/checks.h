// The checks that every drill gets without asking, as pure functions of what was recorded: the
// events, how each process ended, what was left. Steps are checked where they are carried out
// (executor.h); here nothing waits and nothing is started, so each check is tested on made-up
// records.
//
//   no_dispatch_after_stop: the listener's stop is exact. No listener.dispatch[G] comes after its
//     listener.cut[G], and every earlier one has its listener.handler.end[G] before a
//     listener.stop.return[G] that says done (value 0).
//   nothing_left: what a process held of the card after an orderly end, or after a shutdown that
//     said done, however it ended; what its children held, and what the card counts as used when
//     nobody holds anything; files, segments, descriptors, threads and processes that outlived
//     their owner.
//   no_crash: every process ended as the drill says, by code or by signal, and not before; and no
//     child that joined the board crashed.
//   no_hang: every wait of a step without a name came to its end (a step with a name fails under
//     it), and every process that was told to end did.
//   prompt_exit: no timed wait of the engine ran out, unless the drill had moved the clock.
//   clean_logs: no warning and no error that no `logged` step speaks of, of its process.
//
// Threads, ownership: values.
#ifndef HARNESS_VERDICT_CHECKS_H_
#define HARNESS_VERDICT_CHECKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/board/board.h"
#include "harness/process/card_ledger.h"
#include "harness/process/process.h"
#include "harness/scenario/step.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

// How a process was meant to end, as the drill says. Neither code nor signal: exit code 0.
struct Expected {
  bool any = false;  // the drill gave up on it and killed it: not judged
  std::optional<int> code, signal;
};
bool as_said(const End& end, const Expected& expected);
std::string to_string(const Expected& expected);  // "exit code 0", "SIGKILL"

// Everything that is known at the end of a run.
struct Record {
  std::vector<Event> events;
  std::vector<ProcessInfo> processes;  // as in Board::processes()
  std::vector<std::string> notes;      // that the engine says it makes
  struct Ended {
    std::string process;
    pid_t pid = 0;
    std::optional<End> end;  // unset: still there when the drill gave up on it
    Expected expected;
    bool asked = true;       // the drill told it to end, or waited for its end, or made it crash
    bool ready = true;       // it had said that it is ready
    std::string last_words;  // of its standard error
    std::string crash;       // where it reported that it crashed, as in_short() tells it
    // Its end was orderly, or a shutdown had said that it is done: it must hold nothing.
    bool owes_everything = false;
    std::vector<std::string> descriptors_left;  // at its exit order, against those at ready
    std::vector<std::string> threads_left;      // by name, likewise
  };
  std::vector<Ended> ended;
  CardState card;
  std::string card_unreadable;              // why the ledger could not be read; empty: it could
  bool card_lost = false;                   // the card was used, and its ledger is gone
  bool card_looked_at = true;               // false: a driver that keeps no ledger
  std::vector<std::string> files_left;      // below the run's own folder
  std::vector<std::string> default_left;    // in the default places, by IPC name
  std::vector<std::string> processes_left;  // "pid comm" of descendants that had to be killed
  std::optional<std::string> hang;          // why, when a wait or hold ran into its end
  Position hang_position;                   // of the step that hung, if it was one
  std::vector<AllowedLog> log_allowed;
  // The sequence at which the drill was cut short, when it was: what the engine does or leaves
  // behind from then on is the drill's own doing and is not held against it.
  std::optional<std::uint64_t> cut_short;
};

// The note of a timed wait that ran out.
inline constexpr const char* kExpiredNote = "clock.expired";
// The name of the supervisor's own event for a move of the clock (prompt_exit looks for it).
inline constexpr const char* kAdvanceEvent = "advance";

// no_dispatch_after_stop, nothing_left, no_crash, no_hang, prompt_exit, clean_logs: in this order,
// each once, passed ones too. Not judged: what a run cut short cannot judge fairly, and what needs
// notes that the engine does not make.
std::vector<CheckResult> default_checks(const Record& record);

// Their names, for the language.
const std::vector<std::string>& default_check_names();

// Whether no_crash has nothing to say about it.
bool ended_well(const Record::Ended& ended);

// The entries of `left` (paths below `root`, directories end in '/') that are neither in `excused`
// (absolute paths) nor lie on the way to one of them. For what a killed process could not remove.
std::vector<std::string> unexcused(const std::string& root, const std::vector<std::string>& left,
                                   const std::vector<std::string>& excused);

}  // namespace kv::drill

#endif  // HARNESS_VERDICT_CHECKS_H_
