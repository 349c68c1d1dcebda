#include "kvcore/clock.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kvcore/hook.h"

namespace kv {
namespace {

// Reported once per wait that ran out, whatever the clock: the check prompt_exit lives from it.
void note_expired(const char* what) { note<"clock.expired">(0, 0, what); }

}  // namespace

Time RealClock::now() const {
  return std::chrono::time_point_cast<Nanos>(std::chrono::steady_clock::now());
}

bool RealClock::wait(MutexLock& lock, std::condition_variable& changed, Time deadline,
                     const char* what, const std::function<bool()>& ready) {
  note<"clock.wait">(0, 0, what);
  if (deadline == kNever) {
    changed.wait(lock.native(), ready);
    return true;
  }
  const bool there = changed.wait_until(lock.native(), deadline, ready);
  if (!there) note_expired(what);
  return there;
}

int RealClock::poll(int fd, short events, Time deadline, const char* what) {
  note<"clock.wait">(0, 0, what);
  pollfd entry{fd, events, 0};
  for (;;) {
    timespec left{};
    if (deadline != kNever) {
      const auto ns = std::max<std::int64_t>(0, (deadline - now()).count());
      left = {ns / 1'000'000'000, ns % 1'000'000'000};
    }
    const int n = ::ppoll(&entry, 1, deadline == kNever ? nullptr : &left, nullptr);
    if (n > 0) return entry.revents;
    if (n == 0) {
      note_expired(what);
      return 0;
    }
    if (errno != EINTR) return -1;
  }
}

// A wait on the manual clock: either a condition variable or an eventfd is what set() wakes it by.
// Lives on the stack of its wait; `pins` counts the set() calls that still look at it.
struct ManualClock::Waiter {
  std::mutex* mutex = nullptr;
  std::condition_variable* changed = nullptr;
  int wake_fd = -1;
  int pins = 0;
};

ManualClock::ManualClock(Time start) : now_(start) {}
ManualClock::~ManualClock() = default;

Time ManualClock::now() const {
  MutexLock lock(mutex_);
  return now_;
}

bool ManualClock::wait(MutexLock& lock, std::condition_variable& changed, Time deadline,
                       const char* what, const std::function<bool()>& ready) {
  note<"clock.wait">(0, 0, what);
  Waiter waiter{lock.native().mutex(), &changed, -1, 0};
  {
    MutexLock own(mutex_);
    waiters_.push_back(&waiter);
  }
  while (!ready() && now() < deadline) changed.wait(lock.native());
  {
    MutexLock own(mutex_);
    std::erase(waiters_, &waiter);
    if (waiter.pins > 0) {
      // A set() is about to take the caller's mutex to notify us: let it.
      lock.native().unlock();
      unpinned_.wait(own.native(), [&waiter] { return waiter.pins == 0; });
      own.unlock();
      lock.native().lock();
      own.lock();
    }
  }
  const bool there = ready();
  if (!there) note_expired(what);
  return there;
}

int ManualClock::poll(int fd, short events, Time deadline, const char* what) {
  note<"clock.wait">(0, 0, what);
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return -1;
  Waiter waiter{nullptr, nullptr, wake, 0};
  {
    MutexLock own(mutex_);
    waiters_.push_back(&waiter);
  }
  int result = 0;
  for (;;) {
    pollfd entries[2] = {{fd, events, 0}, {wake, POLLIN, 0}};
    const bool late = now() >= deadline;
    const int n = ::poll(entries, 2, late ? 0 : -1);
    if (n < 0 && errno != EINTR) {
      result = -1;
      break;
    }
    if (n > 0 && entries[0].revents != 0) {
      result = entries[0].revents;
      break;
    }
    if (late) {
      note_expired(what);
      break;
    }
    std::uint64_t rung = 0;
    if (entries[1].revents != 0 && ::read(wake, &rung, sizeof rung) < 0 && errno != EAGAIN) {
      result = -1;
      break;
    }
  }
  const int saved = errno;
  {
    MutexLock own(mutex_);
    std::erase(waiters_, &waiter);
  }
  ::close(wake);
  errno = saved;
  return result;
}

void ManualClock::set(Time now) {
  // A waiter is notified with its own mutex held, so that it is either before its look at the clock
  // or asleep. Its mutex may be held by a thread that waits for mutex_, so mutex_ is let go first;
  // the pins keep the waiters where they are meanwhile.
  std::vector<Waiter*> sleepers;
  {
    MutexLock lock(mutex_);
    if (now <= now_) return;
    now_ = now;
    for (Waiter* waiter : waiters_) {
      if (waiter->wake_fd >= 0) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(waiter->wake_fd, &one, sizeof one);
      } else {
        ++waiter->pins;
        sleepers.push_back(waiter);
      }
    }
  }
  for (const Waiter* waiter : sleepers) {
    const std::lock_guard<std::mutex> theirs(*waiter->mutex);
    waiter->changed->notify_all();
  }
  MutexLock lock(mutex_);
  for (Waiter* waiter : sleepers) --waiter->pins;
  unpinned_.notify_all();
}

}  // namespace kv
