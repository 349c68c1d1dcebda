#include "harness/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace kv::drill {

int make_folders(const std::string& path, std::vector<std::string>* made) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0700) == 0) {
      if (made != nullptr) made->push_back(part);
    } else if (errno != EEXIST) {
      return errno;
    }
    if (end == std::string::npos) return 0;
  }
}

int open_regular(int at, const std::string& path, int flags, unsigned mode) {
  const int fd =
      ::openat(at, path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, mode);
  if (fd < 0) return -1;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  errno = EINVAL;
  return -1;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace kv::drill
