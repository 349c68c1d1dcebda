// clang's thread-safety annotations, and a mutex that carries them. Nothing on other compilers.
#ifndef KVCORE_BASE_THREAD_ANNOTATIONS_H_
#define KVCORE_BASE_THREAD_ANNOTATIONS_H_

#include <mutex>

#if defined(__clang__)
#define KV_ANNOTATION_(x) __attribute__((x))
#else
#define KV_ANNOTATION_(x)
#endif
#define KV_CAPABILITY(name) KV_ANNOTATION_(capability(name))
#define KV_SCOPED_CAPABILITY KV_ANNOTATION_(scoped_lockable)
#define KV_GUARDED_BY(mutex) KV_ANNOTATION_(guarded_by(mutex))
#define KV_REQUIRES(...) KV_ANNOTATION_(requires_capability(__VA_ARGS__))
#define KV_EXCLUDES(...) KV_ANNOTATION_(locks_excluded(__VA_ARGS__))
#define KV_ACQUIRE(...) KV_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define KV_TRY_ACQUIRE(...) KV_ANNOTATION_(try_acquire_capability(__VA_ARGS__))
#define KV_RELEASE(...) KV_ANNOTATION_(release_capability(__VA_ARGS__))
#define KV_NO_THREAD_SAFETY_ANALYSIS KV_ANNOTATION_(no_thread_safety_analysis)

namespace kv {

class KV_CAPABILITY("mutex") Mutex {
 public:
  void lock() KV_ACQUIRE() { mutex_.lock(); }
  void unlock() KV_RELEASE() { mutex_.unlock(); }
  // For std::unique_lock and condition variables.
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

// Holds a Mutex from construction to destruction; unlock() and lock() may be used between, and
// native() is what a condition variable waits with.
class KV_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KV_ACQUIRE(mutex) : lock_(mutex.native()) {}
  ~MutexLock() KV_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void unlock() KV_RELEASE() { lock_.unlock(); }
  void lock() KV_ACQUIRE() { lock_.lock(); }
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace kv

#endif  // KVCORE_BASE_THREAD_ANNOTATIONS_H_
