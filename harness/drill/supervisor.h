// Runs one drill: makes its folder and board, starts its processes, carries out its steps, ends
// everything, judges. Meant to be the whole life of a process of its own (see fork_drill).
//
// Threads: one, from beginning to end. Ownership: everything made here is gone when it returns,
// except the run folder, which is kept when the run did not pass or when asked to.
#ifndef HARNESS_DRILL_SUPERVISOR_H_
#define HARNESS_DRILL_SUPERVISOR_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "harness/drill/pause.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

struct RunOptions {
  std::string engine;              // the engine program
  std::vector<std::string> notes;  // that it says it makes
  std::string driver;              // libcuda.so.1 to hand to it: the fake card's or the real one
  bool fake_card = true;           // the driver is the fake card: its ledger is read
  std::string runs_folder;         // where run folders are made: short, private
  bool keep = false;               // keep folders of passing runs too
  std::string repeat;              // the command that repeats this run, for people
  std::vector<Address> skip;       // of the proof, if it is one
  std::vector<std::string> expected_failures;  // of the proof; they do not print
  std::optional<Address> pause_at;             // where it stands still, once
  PauseChannel pause_by;
};

// In this process, which must be single-threaded and have no other children: becomes subreaper,
// own process group, takes a parent-death signal. `lifeline` is a descriptor whose end of file
// means that the runner is gone: everything is ended and the folder removed. -1: none.
DrillResult run_drill(const Drill& drill, const RunOptions& options, int lifeline);

// Forks a supervisor for the drill. result_fd becomes readable with one line of JSON, then ends;
// an end without a line means that the supervisor itself died (verdict error). A run that stands
// still for a person says so by a line before (see pause.h), and goes on by options.pause_by.go.
struct Supervisor {
  pid_t pid = 0;
  int result_fd = -1;
};
// Throws std::system_error when the kernel refuses a process or a pipe.
Supervisor fork_drill(const Drill& drill, const RunOptions& options, int lifeline);

}  // namespace kv::drill

#endif  // HARNESS_DRILL_SUPERVISOR_H_
