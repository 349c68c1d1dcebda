// Puts together what the default checks judge by, once every process of a run has ended.
//
// Threads: the supervisor's single thread. Ownership: borrows; the Record's events and texts live
// in the board.
#ifndef HARNESS_DRILL_SUPERVISOR_RECORD_H_
#define HARNESS_DRILL_SUPERVISOR_RECORD_H_

#include <set>
#include <string>
#include <vector>

#include "harness/verdict/checks.h"
#include "harness/drill/executor.h"
#include "harness/drill/executor_situation.h"
#include "harness/drill/run_folder.h"
#include "harness/scenario/scenario.h"
#include "harness/drill/supervisor.h"

namespace kv::drill {

struct RecordSources {
  const Drill& drill;
  const RunOptions& options;
  const RunFolder& folder;
  Situation& situation;
  Executor& executor;
  // What the harness itself has made in the run folder, by its names there.
  const std::set<std::string>& own_files;
};

// `orphans`: the descendants that had to be killed.
Record make_record(const RecordSources& from, std::vector<std::string> orphans);

}  // namespace kv::drill

#endif  // HARNESS_DRILL_SUPERVISOR_RECORD_H_
