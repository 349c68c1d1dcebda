#include "harness/files.h"

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
