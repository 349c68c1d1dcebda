#include "kvcore/base/clock.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kvcore/hook.h"

namespace kv {
namespace {

// Reported once per wait that ran out, whatever the clock: the check prompt_exit lives from it.
void note_expired(const char* what) {
  note<"clock.expired">(0, 0, what);
}

}  // namespace

Time deadline_after(Time now, Nanos limit) {
  return limit >= kNever - now ? kNever : now + limit;
}

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

// A wait on the manual clock, on the stack of its thread. set() wakes it once its deadline has
// come: through its condition variable, or through an eventfd. All fields are guarded by mutex_.
struct ManualClock::Waiter {
  Time deadline;
  std::mutex* mutex = nullptr;
  std::condition_variable* changed = nullptr;
  int wake_fd = -1;
  bool told = false;    // its deadline came and it was woken, once and for all
  bool pinned = false;  // a set() is at its mutex and condition variable: it must not go away
};

ManualClock::ManualClock(Time start) : now_(start) {}
ManualClock::~ManualClock() = default;

Time ManualClock::now() const {
  MutexLock lock(mutex_);
  return now_;
}

void ManualClock::enter(Waiter* waiter) {
  MutexLock own(mutex_);
  waiters_.push_back(waiter);
}

bool ManualClock::leave(Waiter* waiter, MutexLock& theirs) {
  MutexLock own(mutex_);
  if (!waiter->pinned) {
    std::erase(waiters_, waiter);
    return true;
  }
  theirs.native().unlock();  // the set() that has pinned us waits for it
  unpinned_.wait(own.native(), [waiter] { return !waiter->pinned; });
  own.unlock();
  theirs.native().lock();
  return false;
}

bool ManualClock::wait(MutexLock& lock, std::condition_variable& changed, Time deadline,
                       const char* what, const std::function<bool()>& ready) {
  note<"clock.wait">(0, 0, what);
  Waiter waiter{deadline, lock.native().mutex(), &changed};
  enter(&waiter);
  bool there = false;
  do {
    // Again after every time without the lock, so that the answer is true of now.
    for (there = ready(); !there && now() < deadline; there = ready()) changed.wait(lock.native());
  } while (!leave(&waiter, lock));
  if (!there) note_expired(what);
  return there;
}

int ManualClock::poll(int fd, short events, Time deadline, const char* what) {
  note<"clock.wait">(0, 0, what);
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return -1;
  Waiter waiter{deadline, nullptr, nullptr, wake};
  enter(&waiter);
  int result = 0;
  for (;;) {
    pollfd entries[2] = {{fd, events, 0}, {wake, POLLIN, 0}};
    const bool late = now() >= deadline;
    // The wake descriptor is rung once and stays readable: by then it is late.
    const int n = ::poll(entries, 2, late ? 0 : -1);
    if (n < 0 && errno != EINTR) {
      result = -1;
      break;
    }
    if (n > 0 && entries[0].revents != 0) {
      result = entries[0].revents;
      break;
    }
    if (late && n >= 0) {
      note_expired(what);
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
  MutexLock own(mutex_);
  now_ = std::max(now_, now);
  for (;;) {
    const Time reached = now_;
    const auto next = std::find_if(
        waiters_.begin(), waiters_.end(),
        [reached](const Waiter* waiter) { return !waiter->told && waiter->deadline <= reached; });
    if (next == waiters_.end()) return;
    Waiter* waiter = *next;
    waiter->told = true;
    if (waiter->wake_fd >= 0) {
      const std::uint64_t one = 1;
      // A new counter takes its first value without fail.
      [[maybe_unused]] const auto written = ::write(waiter->wake_fd, &one, sizeof one);
      continue;
    }
    // Notified with its own mutex held, a waiter is either before its look at the clock or asleep.
    // The holder of that mutex may be waiting for ours, so ours is let go first; the pin keeps the
    // waiter where it is meanwhile, and only that one: the others may leave.
    waiter->pinned = true;
    own.unlock();
    {
      const std::lock_guard<std::mutex> theirs(*waiter->mutex);
      waiter->changed->notify_all();
    }
    own.lock();
    waiter->pinned = false;
    unpinned_.notify_all();
  }
}

}  // namespace kv
