// What a machine can do to a run, and no engine is to blame for: a full disk, a limit on processes,
// descriptors, files or memory that whoever started kvdrill has set.
//
// Threads: the supervisor's single thread. Ownership: values.
#ifndef HARNESS_DRILL_MACHINE_H_
#define HARNESS_DRILL_MACHINE_H_

#include <optional>

#include "harness/drill/run_folder.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

// For a run that did not go as it should, after its processes have ended: the error that says what
// the machine lacks, if that may be the reason, with what to do; nothing otherwise.
std::optional<CheckResult> blame_machine(const RunFolder& folder, const Drill& drill,
                                         const DrillResult& result);

// How many processes the kernel gives to this one now, at most `enough`: by asking for them.
int processes_left(int enough);

}  // namespace kv::drill

#endif  // HARNESS_DRILL_MACHINE_H_
