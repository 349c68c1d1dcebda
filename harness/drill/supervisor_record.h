// Puts together what the default checks judge by, once every process of a run has ended.
//
// Threads: the supervisor's single thread. Ownership: borrows; the Record's events and texts live
// in the board.
#ifndef HARNESS_DRILL_SUPERVISOR_RECORD_H_
#define HARNESS_DRILL_SUPERVISOR_RECORD_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/drill/executor.h"
#include "harness/drill/executor_situation.h"
#include "harness/drill/run_folder.h"
#include "harness/drill/supervisor.h"
#include "harness/process/leftovers.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/checks.h"

namespace kv::drill {

struct RecordSources {
  const Drill& drill;
  const RunOptions& options;
  const RunFolder& folder;
  Situation& situation;
  Executor& executor;
  // What the harness itself has made in the run folder, by its names there.
  const std::set<std::string>& own_files;
  // What lay in the default places before the run: see default_places().
  const std::map<std::string, FileId>& default_before;
};

// The names by which this run's processes may be found in the default places.
InstanceNames names_of(const Drill& drill, const RunFolder& folder);

// `orphans`: the descendants that had to be killed.
Record make_record(const RecordSources& from, std::vector<std::string> orphans);

}  // namespace kv::drill

#endif  // HARNESS_DRILL_SUPERVISOR_RECORD_H_
