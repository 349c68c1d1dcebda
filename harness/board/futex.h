// The two futex calls that the board needs, on words in shared memory (so never the private kind).
//
// Threads: any; both are async-signal-safe and leave errno as it was.
#ifndef HARNESS_BOARD_FUTEX_H_
#define HARNESS_BOARD_FUTEX_H_

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "harness/board/sanitizer.h"

namespace kv::drill {

// Returns when woken, when the word is no longer `seen`, or after a signal: the caller looks again.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const int saved = errno;
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, nullptr, nullptr,
            0);
  // A race detector delivers a signal at the next call that it knows; this one changes nothing.
  if (kRaceDetector) ::pthread_sigmask(SIG_BLOCK, nullptr, nullptr);
  errno = saved;
}

// The same, for so long at most.
inline void futex_wait_for_ms(std::atomic<std::uint32_t>& word, std::uint32_t seen, long ms) {
  const int saved = errno;
  const timespec limit{ms / 1000, ms % 1000 * 1'000'000};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr,
            0);
  errno = saved;
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  const int saved = errno;
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
  errno = saved;
}

}  // namespace kv::drill

#endif  // HARNESS_BOARD_FUTEX_H_
