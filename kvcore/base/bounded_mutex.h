// A mutex for what may take long: whoever wants it can say until when to wait, by the engine's own
// clock. Slower than Mutex, and not for short critical sections.
//
// Threads: any. Ownership: values.
#ifndef KVCORE_BASE_BOUNDED_MUTEX_H_
#define KVCORE_BASE_BOUNDED_MUTEX_H_

#include <condition_variable>

#include "kvcore/base/clock.h"
#include "kvcore/base/thread_annotations.h"

namespace kv {

class KV_CAPABILITY("mutex") BoundedMutex {
 public:
  void lock() KV_ACQUIRE() {
    MutexLock lock(mutex_);
    while (taken_) free_.wait(lock.native());
    taken_ = true;
  }
  // False: somebody else has had it all the time. `what` names the wait, see Clock::wait().
  bool lock(Clock& clock, Time until, const char* what) KV_TRY_ACQUIRE(true) {
    MutexLock lock(mutex_);
    const auto free = [this]() KV_NO_THREAD_SAFETY_ANALYSIS { return !taken_; };
    if (taken_ && !clock.wait(lock, free_, until, what, free)) return false;
    taken_ = true;
    return true;
  }
  void unlock() KV_RELEASE() {
    const MutexLock lock(mutex_);
    taken_ = false;
    free_.notify_one();
  }

 private:
  Mutex mutex_;
  std::condition_variable free_;
  bool taken_ KV_GUARDED_BY(mutex_) = false;
};

// Holds one from construction to destruction; unlock() and lock() may be used between.
class KV_SCOPED_CAPABILITY BoundedLock {
 public:
  explicit BoundedLock(BoundedMutex& mutex) KV_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~BoundedLock() KV_RELEASE() { mutex_.unlock(); }
  BoundedLock(const BoundedLock&) = delete;
  BoundedLock& operator=(const BoundedLock&) = delete;
  void unlock() KV_RELEASE() { mutex_.unlock(); }
  void lock() KV_ACQUIRE() { mutex_.lock(); }

 private:
  BoundedMutex& mutex_;
};

}  // namespace kv

#endif  // KVCORE_BASE_BOUNDED_MUTEX_H_
