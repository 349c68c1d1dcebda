// All time of kvcore, and every wait that has a limit, comes from a Clock: the real one, or a
// manual one that a test or a drill moves. So a limit of 5 s is tested at 5 s, in no time.
//
// Threads: every member may be called from any thread. wait() and poll() block the caller only.
// Ownership: whoever makes a Clock keeps it alive for as long as anything built with it.
#ifndef KVCORE_BASE_CLOCK_H_
#define KVCORE_BASE_CLOCK_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kvcore/base/thread_annotations.h"

namespace kv {

using Nanos = std::chrono::nanoseconds;
// Since the clock's own epoch (real: the kernel's monotonic clock; manual: its start value).
using Time = std::chrono::time_point<std::chrono::steady_clock, Nanos>;
inline constexpr Time kNever = Time::max();
// `now` + `limit`, or kNever when that lies beyond all time.
Time deadline_after(Time now, Nanos limit);

class Clock {
 public:
  virtual ~Clock() = default;

  virtual Time now() const = 0;
  // Waits until `ready()` is true or `deadline` has come; returns ready(). The condition variable
  // is notified by whoever changes what ready() reads, with the lock held at the change.
  // An expired wait is noted as "clock.expired" with `what` (a name for people, static storage).
  virtual bool wait(MutexLock& lock, std::condition_variable& changed, Time deadline,
                    const char* what, const std::function<bool()>& ready) = 0;
  // Waits until `fd` has one of `events` (as in poll(2)) or `deadline` has come.
  // Returns the events that are there; 0 when the deadline came; -1 with errno when poll failed.
  virtual int poll(int fd, short events, Time deadline, const char* what) = 0;
};

// Monotonic wall time.
class RealClock final : public Clock {
 public:
  Time now() const override;
  bool wait(MutexLock& lock, std::condition_variable& changed, Time deadline, const char* what,
            const std::function<bool()>& ready) override;
  int poll(int fd, short events, Time deadline, const char* what) override;
};

// Stands still until set() moves it; set() wakes every wait whose deadline has come.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Time start = Time());
  ~ManualClock() override;

  Time now() const override;
  bool wait(MutexLock& lock, std::condition_variable& changed, Time deadline, const char* what,
            const std::function<bool()>& ready) override;
  int poll(int fd, short events, Time deadline, const char* what) override;
  // Moves the clock; never back (an earlier time is ignored). Every wait whose deadline has
  // come was woken when it returns, or is being woken by another set(). The caller holds no mutex
  // that a wait() on this clock uses.
  void set(Time now);

 private:
  struct Waiter;
  void enter(Waiter* waiter);
  // Takes the waiter off the list; `theirs` was held all the time when this is true. False: it had
  // to be let go for a set() in between; what the waiter knows may be out of date.
  bool leave(Waiter* waiter, MutexLock& theirs);

  mutable Mutex mutex_;
  Time now_ KV_GUARDED_BY(mutex_);
  std::vector<Waiter*> waiters_ KV_GUARDED_BY(mutex_);
  std::condition_variable unpinned_;  // goes with mutex_
};

}  // namespace kv

#endif  // KVCORE_BASE_CLOCK_H_
