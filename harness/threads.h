// What the kernel says of the threads of a drill's processes: whether anybody can still move, and
// who waits for what. So "it has not returned and never will" is decided exactly and at once,
// without a time limit, and a hang is reported as a table instead of a timeout.
//
// Nobody can move when every thread of every process sleeps in a wait that only another of these
// threads (or the supervisor) can end: no timed wait is pending, none is running or in disk sleep,
// nothing on the board moved, and no thread was scheduled between two looks.
//
// Threads: the supervisor's single thread. Source of facts: proc(5), /proc/PID/task/TID/{stat,
// status,syscall}; reading `syscall` needs ptrace rights, which an ancestor has.
#ifndef HARNESS_THREADS_H_
#define HARNESS_THREADS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kv::drill {

struct ThreadState {
  pid_t pid = 0, tid = 0;
  char state = '?';            // R, S, D, T, Z as in proc(5)
  std::uint64_t switches = 0;  // voluntary and involuntary, in sum
  std::string call;            // "futex", "epoll_wait", "recvfrom", ...; "running"; "?" unreadable
  bool timed = false;          // the call has a time limit that will end it
  std::string comm;            // the kernel's name of the thread
};

// One look at all threads of these processes; a process that is gone is left out.
std::vector<ThreadState> look(const std::vector<pid_t>& pids);

enum class Motion { kMoving, kStuck, kUnknown };
// Two looks with `sequence()` (the board's next sequence) read around them. kUnknown: the kernel
// does not let us see the system calls, so only a deadline can tell.
Motion motion(const std::vector<pid_t>& pids, const std::function<std::uint64_t()>& sequence);

// The name of a system call on this machine ("futex"); "syscall 999" when unknown.
std::string syscall_name(long number);

}  // namespace kv::drill

#endif  // HARNESS_THREADS_H_
