// Who waits for what, when nobody can move or a wait took too long: one line a thread, made from
// what the kernel says of it and what it last told the board.
//
// Threads: the supervisor's single thread. Ownership: values.
#ifndef HARNESS_PROCESS_STUCK_H_
#define HARNESS_PROCESS_STUCK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/board/board.h"
#include "harness/process/threads.h"

namespace kv::drill {

struct Waiter {
  std::string process, label;
  pid_t pid = 0, tid = 0;
  std::string where;          // "held at vmm.map[0]", "futex", "running", "stopped by SIGSTOP"
  std::string last;           // the last moment that it reported, as an address; may be empty
  std::int64_t since_ns = 0;  // when it reported that; 0: never
  std::string whom;           // whom it waits for, as far as that is known
  bool held = false;
  bool stopped = false;  // with its whole process, by a signal
  bool busy = false;     // it runs, or its wait will end by itself
};

// One entry per thread, the held ones first, then those that have reported moments, then the rest.
std::vector<Waiter> who_waits(const std::vector<ThreadState>& threads,
                              const std::vector<ProcessInfo>& processes,
                              const std::vector<Event>& events);

// "worker/listener is held at vmm.map[0]; worker/stop waits in futex after listener.stop.begin[1]"
// The idle ones (who never reported a moment and wait for others) are left out, and a stopped
// process is said once; at most four.
std::string in_short(const std::vector<Waiter>& waiters);

// All of them, one a line, under a heading.
std::string as_table(const std::vector<Waiter>& waiters, std::int64_t now_ns);

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_STUCK_H_
