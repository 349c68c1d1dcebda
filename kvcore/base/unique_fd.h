// A file descriptor that is closed by whoever holds it last.
//
// Threads: a value; one thread at a time.
// Ownership: owns the descriptor.
#ifndef KVCORE_BASE_UNIQUE_FD_H_
#define KVCORE_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace kv {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Closes what is held and holds `fd` instead.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace kv

#endif  // KVCORE_BASE_UNIQUE_FD_H_
