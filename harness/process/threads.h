// What the kernel says of the threads of a drill's processes: whether anybody can still move, and
// who waits for what. So "it has not returned and never will" is decided exactly and at once,
// without a time limit, and a hang is reported as a table instead of a timeout.
//
// Nobody can move when every thread of every process sleeps in a wait that only another of these
// threads (or the supervisor) can end: no timed wait is pending, none is running or in disk sleep,
// nothing on the board moved, and no thread was scheduled between two looks.
//
// What cannot be seen, and so must not end the waits of an engine: a limit set on a socket by
// SO_RCVTIMEO, alarm() and timer_create(), and whatever comes from outside of the processes looked
// at. Armed timerfds are seen. io_uring waits count as timed, as the kernel may end them.
//
// Threads: the supervisor's single thread. Source of facts: proc(5), /proc/PID/task/TID/{stat,
// status,syscall}; reading `syscall` needs ptrace rights, which an ancestor has.
#ifndef HARNESS_PROCESS_THREADS_H_
#define HARNESS_PROCESS_THREADS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kv::drill {

struct ThreadState {
  pid_t pid = 0, tid = 0;
  char state = '?';            // R, S, D, T, t, Z, X, I as in proc(5)
  std::uint64_t switches = 0;  // how often it left a processor, of its own will or not
  // "futex", "epoll_wait", "recvfrom", ...; "running"; "none": asleep outside of a call (a page
  // fault); "?": the kernel does not tell
  std::string call;
  bool timed = false;  // the call has a time limit that will end it
  std::string comm;    // the kernel's name of the thread
};

// A process to look at, and those of its threads that do not count: a sanitizer's background
// threads, which sleep by the clock for ever and never touch the engine.
struct Watched {
  pid_t pid = 0;
  std::vector<pid_t> ignore;  // tids
};

// One look at all threads of these processes, by pid and tid; a process that is gone is left out.
std::vector<ThreadState> look(const std::vector<Watched>& processes);

// In this order: of several threads the last one counts.
enum class Motion { kStuck, kTimed, kUnknown, kMoving };
// Two looks with `sequence()` (the board's next sequence) read around them. kMoving: somebody may
// move by itself. kStuck: at one instant during this call nobody could, and none of them ever will
// unless the caller or the outside acts; a stopped (frozen) process does not count as moving, one
// that a debugger has stopped does. kTimed: as kStuck, but for a limit of time that runs.
// kUnknown: the kernel does not let us see the system calls, so only a deadline can tell.
// After kStuck, compare the sequence with the last event that you know of: what is newer was
// written before that instant.
Motion motion(const std::vector<Watched>& processes,
              const std::function<std::uint64_t()>& sequence);

// What two looks, one after the other, say by themselves (no timers, no board): for motion().
Motion judge(const std::vector<ThreadState>& before, const std::vector<ThreadState>& after);

// "worker.reactor (tid 812): asleep in epoll_wait", for people; `label` may be empty.
std::string to_string(const ThreadState& thread, const std::string& label);

// The name of a system call on this machine ("futex"); "syscall 999" when unknown.
std::string syscall_name(long number);

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_THREADS_H_
