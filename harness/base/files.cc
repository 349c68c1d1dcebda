#include "harness/base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace kv::drill {
namespace {

std::string cannot_be_read() {
  return "cannot be read: " + std::generic_category().message(errno);
}

// Whole: true. Otherwise `why` is set.
bool read_to_end(int fd, std::size_t most, std::string* text, std::string* why) {
  for (char chunk[65536];;) {
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n == 0) return true;
    if (n > 0) {
      text->append(chunk, static_cast<std::size_t>(n));
      if (text->size() <= most) continue;
      *why = "holds more than " + std::to_string(most) + " bytes";
      return false;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      *why = cannot_be_read();
      return false;
    }
    pollfd more{fd, POLLIN, 0};
    ::poll(&more, 1, -1);
  }
}

}  // namespace

std::string plain_path(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path whole = fs::absolute(path);
  if (std::find(whole.begin(), whole.end(), "..") != whole.end()) {
    const bool last = whole.filename() == "..";
    const fs::path name = last ? fs::path() : whole.filename();
    whole = fs::weakly_canonical(last ? whole : whole.parent_path()) / name;
  }
  std::string text = whole.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

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

tl::expected<std::string, std::string> read_file(const std::string& path, std::size_t most,
                                                 bool or_pipe) {
  // Not waiting: neither for somebody who writes a pipe, nor for a terminal.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return tl::unexpected(cannot_be_read());
  struct stat info {};
  std::string text, why;
  if (::fstat(fd, &info) != 0) {
    why = cannot_be_read();
  } else if (!S_ISREG(info.st_mode) && !(or_pipe && S_ISFIFO(info.st_mode))) {
    why = or_pipe ? "neither a regular file nor a pipe" : "not a regular file";
  } else {
    read_to_end(fd, most, &text, &why);
  }
  ::close(fd);
  if (!why.empty()) return tl::unexpected(std::move(why));
  return text;
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
