// How a process of a drill is started: the engine contract's arguments and environment, written
// down in one place. Everything the supervisor reads of its own environment is read here.
//
// Threads, ownership: functions of values.
#ifndef HARNESS_DRILL_SUPERVISOR_LAUNCH_H_
#define HARNESS_DRILL_SUPERVISOR_LAUNCH_H_

#include <map>
#include <string>

#include "harness/board/board.h"
#include "harness/drill/run_folder.h"
#include "harness/drill/supervisor.h"
#include "harness/process/process.h"
#include "harness/scenario/scenario.h"

namespace kv::drill {

// Numbers of the board's two descriptors in every process.
inline constexpr int kBoardDescriptor = 3;
inline constexpr int kWakeDescriptor = 4;

// What every program of a drill has of our own environment, to be found and to find its libraries:
// PATH, LD_LIBRARY_PATH, and the real driver's choice of devices.
std::map<std::string, std::string> inherited_environment();

// The IPC name of a process: its own, or the run's.
std::string ipc_of(const ProcessSpec& process, const RunFolder& folder);

// Its outputs are left to the caller.
Launch make_launch(const Drill& drill, const RunOptions& options, const RunFolder& folder,
                   const Board& board, const ProcessSpec& process);

// The options of sanitizers in `theirs` (NAME=VALUE of an environment), each told to leave the
// signals alone that tell a drill how a process died.
std::map<std::string, std::string> sanitizer_options(const char* const* theirs, bool sanitized);

}  // namespace kv::drill

#endif  // HARNESS_DRILL_SUPERVISOR_LAUNCH_H_
