// Runs many drills, a supervisor process for each, some side by side, and hands every result over
// in the order of the jobs. It starts nothing but supervisors and knows nothing of what they do.
//
// Threads: the calling thread only; it must have no other (supervisors are forked from it).
// Ownership: every supervisor is reaped here. This process becomes a subreaper: what a supervisor
// that was killed leaves behind is ended here, and its folder named. If this process is killed
// instead, each supervisor sees the end of its lifeline, ends its processes and removes its folder.
#ifndef HARNESS_DRILL_RUNNER_H_
#define HARNESS_DRILL_RUNNER_H_

#include <functional>
#include <vector>

#include "harness/drill/pause.h"
#include "harness/drill/supervisor.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

struct Job {
  const Drill* drill = nullptr;
  const Proof* proof = nullptr;  // the proof that it runs, or null
  RunOptions options;
};

enum class RunEnd { kAll, kStopped, kInterrupted };

struct RunWatch {
  // Called for each job that ran, in the order of the jobs; false from it ends the run (jobs in
  // flight are ended and not reported): kStopped.
  std::function<bool(std::size_t index, DrillResult result)> done;
  // Each may be null. Called when it happens, in whatever order; `tick` about every second, for a
  // display that shows the time.
  std::function<void(std::size_t index)> started, ended;
  std::function<void()> tick;
  // A run stands still (RunOptions::pause_at) until a line, or the end, comes on standard input.
  std::function<void(const Pause& pause)> paused;
};

// SIGINT and SIGTERM end it: kInterrupted; what had finished is reported first. A job for which the
// kernel has no process or no descriptor left waits until another ends; without another its result
// is an error.
RunEnd run_jobs(const std::vector<Job>& jobs, int parallel, const RunWatch& watch);

}  // namespace kv::drill

#endif  // HARNESS_DRILL_RUNNER_H_
