#include "harness/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "harness/leftovers.h"

namespace kv::drill {
namespace {

// mkdir -p, each folder for this user only. 0 or an errno value.
int make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return errno;
    if (end == std::string::npos) return 0;
  }
}

}  // namespace

tl::expected<RunFolder, std::string> RunFolder::make(const std::string& runs_folder) {
  const auto refused = [](const std::string& path, int error) {
    return tl::unexpected(
        fmt::format("{}: the run folder cannot be made: {}", path, std::strerror(error)));
  };
  if (const int error = make_folders(runs_folder); error != 0) return refused(runs_folder, error);
  // Letters and digits only, and few of them: they are part of socket paths and of the IPC name.
  std::string path = runs_folder + "/XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return refused(path, errno);
  RunFolder folder;
  folder.path_ = path;
  folder.ipc_name_ = "kvd" + path.substr(path.size() - 6);
  for (const char* part : {"s", "m", "card", "out"}) {
    const std::string below = path + "/" + part;
    if (::mkdir(below.c_str(), 0700) != 0) return refused(below, errno);
  }
  return folder;
}

std::string RunFolder::output(std::string_view process, int time, std::string_view stream) const {
  return time > 1 ? fmt::format("{}/out/{}.{}.{}", path_, process, time, stream)
                  : fmt::format("{}/out/{}.{}", path_, process, stream);
}

bool RunFolder::write(std::string_view name, std::string_view text) const {
  return put(name, text, O_TRUNC);
}

bool RunFolder::append(std::string_view name, std::string_view text) const {
  return put(name, text, O_APPEND);
}

bool RunFolder::put(std::string_view name, std::string_view text, int flags) const {
  const std::string path = fmt::format("{}/{}", path_, name);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  if (fd < 0) return false;
  bool good = true;
  while (good && !text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    good = written > 0 || (written < 0 && errno == EINTR);
  }
  return ::close(fd) == 0 && good;
}

bool RunFolder::remove() const {
  return remove_tree(path_);
}

std::string last_words(const std::string& path, std::size_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  struct stat info {};
  std::string text;
  if (::fstat(fd, &info) == 0) {
    const auto size = static_cast<std::size_t>(info.st_size);
    text.resize(std::min(size, bytes));
    const ssize_t got =
        ::pread(fd, text.data(), text.size(), static_cast<off_t>(size - text.size()));
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  ::close(fd);
  std::string words;
  std::string_view left = text;
  while (!left.empty()) {
    const auto end = left.find('\n');
    const auto line = left.substr(0, end);
    left = end == std::string_view::npos ? std::string_view() : left.substr(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (!words.empty()) words += " / ";
    words += line;
  }
  return words;
}

}  // namespace kv::drill
