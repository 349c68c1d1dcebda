#include "fakes/card/byte_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace kv::card {
namespace {

struct flock byte_at(std::uint64_t index, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(index);
  lock.l_len = 1;
  return lock;
}

int control(int fd, int command, struct flock* lock) {
  int result = 0;
  do {
    result = ::fcntl(fd, command, lock);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

bool lock_byte(int fd, std::uint64_t index) {
  struct flock lock = byte_at(index, F_WRLCK);
  return control(fd, F_OFD_SETLK, &lock) == 0;
}

bool await_byte(int fd, std::uint64_t index) {
  struct flock lock = byte_at(index, F_WRLCK);
  return control(fd, F_OFD_SETLKW, &lock) == 0;
}

void unlock_byte(int fd, std::uint64_t index) {
  struct flock lock = byte_at(index, F_UNLCK);
  control(fd, F_OFD_SETLK, &lock);
}

bool byte_is_locked(int fd, std::uint64_t index) {
  struct flock lock = byte_at(index, F_WRLCK);
  return control(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int reopen(int fd) {
  return ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
}

}  // namespace kv::card
