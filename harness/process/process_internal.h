// What the files behind process.h share. Nobody else includes it.
#ifndef HARNESS_PROCESS_PROCESS_INTERNAL_H_
#define HARNESS_PROCESS_PROCESS_INTERNAL_H_

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "harness/process/process.h"

namespace kv::drill {

// Owns a descriptor; -1: none. Closing keeps errno.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }
  ~Descriptor() { close(); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void close() {
    if (fd_ < 0) return;
    const int kept = errno;
    ::close(fd_);
    fd_ = -1;
    errno = kept;
  }

 private:
  int fd_ = -1;
};

// By number: the C library's declarations cannot be linked from C++ before its version 2.37.
inline int open_pidfd(pid_t pid) {  // closed on exec; -1 and errno
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u));
}
inline bool send_signal(int pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0u) == 0;
}

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_PROCESS_INTERNAL_H_
