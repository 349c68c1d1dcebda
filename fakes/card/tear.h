// A place in the accounts where a process may be killed in the middle: tests walk through all of
// them (kvcardTearAfter). The stores before it are made before those behind it.
//
// Threads: any. Ownership: none.
#ifndef FAKES_CARD_TEAR_H_
#define FAKES_CARD_TEAR_H_

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace kv::card {

inline std::atomic<unsigned> tears_passed{0};
inline std::atomic<unsigned> tear_at{0};  // 0: never

inline void tear() {
  // Against the compiler's reordering: what a killed process has stored, others see in this order.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const unsigned at = tear_at.load(std::memory_order_relaxed);
  if (at == 0) [[likely]]
    return;
  if (tears_passed.fetch_add(1, std::memory_order_relaxed) + 1 == at) ::kill(::getpid(), SIGKILL);
}

}  // namespace kv::card

#endif  // FAKES_CARD_TEAR_H_
