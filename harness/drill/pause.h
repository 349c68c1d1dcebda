// --pause-at: a run stands still at a moment until a person lets it go on. The supervisor, whose
// board holds the thread, tells the runner, which has the terminal; the runner tells the person and
// sends the supervisor on.
//
// Threads, ownership: values; descriptors are borrowed.
#ifndef HARNESS_DRILL_PAUSE_H_
#define HARNESS_DRILL_PAUSE_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace kv::drill {

// Where a run stands.
struct Pause {
  std::string at;      // the moment, with its key: "vmm.map[4]"
  std::string thread;  // "worker/listener.w0"
  pid_t pid = 0, tid = 0;
  std::string folder;  // of the run
};

// The ends that a supervisor has of the two pipes between it and its runner.
struct PauseChannel {
  int say = -1;  // for writing: one line per pause
  int go = -1;   // for reading: a byte lets the run go on, an end too
};

// One line without its end, and back; none: the line is something else.
std::string to_line(const Pause& pause);
std::optional<Pause> pause_from_line(std::string_view line);

// Process, thread, and the command that attaches a debugger to that thread. `restricted`: the
// kernel lets only root attach to a process that is not one's child.
std::string pause_text(const Pause& pause, bool restricted);
bool attaching_is_restricted();

}  // namespace kv::drill

#endif  // HARNESS_DRILL_PAUSE_H_
