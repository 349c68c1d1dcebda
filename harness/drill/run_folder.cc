#include "harness/drill/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "harness/base/files.h"
#include "harness/process/process.h"

namespace kv::drill {
namespace {

constexpr const char* kMakerFile = "supervisor";

// What one run writes at least: the fake card's ledger, plan and outputs.
constexpr std::uint64_t kRunBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kNextToNothing = std::uint64_t{64} << 10;

// What comes behind the folder of the runs, at the longest:
// /XXXXXX/s/kvcached-tp-<ipc>-0123abcd/pp12/w1234.sock
constexpr std::size_t kSocketBytes = 47;
constexpr std::size_t kOwnIpcBytes = 9;
constexpr std::size_t kAddressBytes = sizeof(sockaddr_un{}.sun_path) - 1;

}  // namespace

tl::expected<RunFolder, std::string> RunFolder::make(const std::string& runs_folder) {
  const auto refused = [](const std::string& path, int error) {
    return tl::unexpected(
        fmt::format("{}: the run folder cannot be made: {}", path, std::strerror(error)));
  };
  if (const int error = make_folders(runs_folder); error != 0) return refused(runs_folder, error);
  if (std::string why = no_room_on(runs_folder); !why.empty()) {
    return tl::unexpected(std::move(why));
  }
  // Letters and digits only, and few of them: they are part of socket paths and of the IPC name.
  std::string path = runs_folder + "/XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return refused(path, errno);
  RunFolder folder;
  folder.path_ = path;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return refused(path, errno);
  folder.folder_ = std::shared_ptr<const int>(new int(fd), [](const int* open) {
    ::close(*open);
    delete open;
  });
  folder.ipc_name_ = "kvd" + path.substr(path.size() - 6);
  for (const char* part : {"s", "m", "card", "out"}) {
    const std::string below = path + "/" + part;
    if (::mkdir(below.c_str(), 0700) != 0) return refused(below, errno);
    folder.made_[std::string(part) + "/"] = identify(below);
  }
  if (!folder.write(kMakerFile, process_identity(::getpid()) + "\n")) {
    return refused(path + "/" + kMakerFile, errno);
  }
  return folder;
}

std::string RunFolder::of(const std::string& runs_folder, const std::string& identity) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator entry(runs_folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const int fd = open_regular(AT_FDCWD, (entry->path() / kMakerFile).string(), O_RDONLY);
    if (fd < 0) continue;
    char text[256];
    const ssize_t got = ::read(fd, text, sizeof text);
    ::close(fd);
    if (got > 0 && std::string_view(text, static_cast<std::size_t>(got)) == identity + "\n") {
      return entry->path().string();
    }
  }
  return {};
}

std::string RunFolder::output(std::string_view process, int time, std::string_view stream) const {
  return time > 1 ? fmt::format("{}/out/{}.{}.{}", path_, process, time, stream)
                  : fmt::format("{}/out/{}.{}", path_, process, stream);
}

bool RunFolder::write(std::string_view name, std::string_view text) const {
  // A new file: links, pipes and whatever else a process has put there are not written to.
  if (::unlinkat(*folder_, std::string(name).c_str(), 0) != 0 && errno != ENOENT) return false;
  if (!put(name, text, O_EXCL)) return false;
  made_[std::string(name)] = identify(path_ + "/" + std::string(name));
  return true;
}

bool RunFolder::append(std::string_view name, std::string_view text) const {
  return put(name, text, O_APPEND);
}

bool RunFolder::put(std::string_view name, std::string_view text, int flags) const {
  const int fd = open_regular(*folder_, std::string(name), O_WRONLY | O_CREAT | flags);
  if (fd < 0) return false;
  const bool good = write_all(fd, text);
  return ::close(fd) == 0 && good;
}

std::string RunFolder::where() const {
  // What it is, not what it is called: the kernel knows it by a path without links.
  const auto is_at = [this](const std::string& path) {
    struct stat ours {
    }, there{};
    return ::fstat(*folder_, &ours) == 0 && ::lstat(path.c_str(), &there) == 0 &&
           ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
  };
  if (is_at(path_)) return path_;
  std::error_code error;
  const std::string link = "/proc/self/fd/" + std::to_string(*folder_);
  const std::string now = std::filesystem::read_symlink(link, error).string();
  return !error && is_at(now) ? now : std::string();
}

std::vector<std::string> RunFolder::lost() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : made_) {
    std::string path = path_ + "/" + name;
    if (path.ends_with('/')) path.pop_back();
    if (!(identify(path) == file)) names.push_back(name);
  }
  return names;
}

std::string RunFolder::make_small(std::int64_t bytes) {
  const auto refused = [](const std::string& what) {
    return fmt::format("no file system of its own: {}: {}", what, std::strerror(errno));
  };
  const std::string user = fmt::format("{0} {0} 1", ::geteuid());
  const std::string group = fmt::format("{0} {0} 1", ::getegid());
  if (::unshare(CLONE_NEWNS) != 0) {
    // A user without that right has it in a namespace of users that he is alone in.
    if (errno != EPERM || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return refused("unshare");
    for (const auto& [name, text] :
         {std::pair{"setgroups", std::string("deny")}, {"uid_map", user}, {"gid_map", group}}) {
      const std::string path = std::string("/proc/self/") + name;
      const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
      const bool written = fd >= 0 && write_all(fd, text);
      if (fd >= 0) ::close(fd);
      if (!written) return refused(path);
    }
  }
  // What is mounted here is not to be seen outside.
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return refused("mount /");
  small_ = true;
  const std::string options = fmt::format("size={},mode=0700", bytes);
  for (const std::string& root : {socket_root(), segment_root()}) {
    if (::mount("kvdrill", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
      return refused("mount");
    }
    made_[root.substr(path_.size() + 1) + "/"] = identify(root);
  }
  return {};
}

std::string RunFolder::remove() const {
  for (const std::string& root : {socket_root(), segment_root()}) {
    if (small_) ::umount2(root.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  }
  const std::string now = where();
  for (const std::string& path : {now, path_}) {
    if (path.empty()) continue;
    if (std::string why = remove_tree(path); !why.empty()) return why;
  }
  return {};
}

std::string too_long_for_sockets(const std::string& runs_folder, std::size_t ipc_bytes) {
  const std::size_t behind = kSocketBytes + std::max(ipc_bytes, kOwnIpcBytes);
  const std::size_t most = kAddressBytes - std::min(behind, kAddressBytes);
  if (runs_folder.size() <= most) return {};
  return fmt::format(
      "{}: the folder of the runs has {} bytes, expected at most {}: a socket's path holds {}, and "
      "{} of them come behind it; {} too many",
      runs_folder, runs_folder.size(), most, kAddressBytes, behind, runs_folder.size() - most);
}

std::string no_space_on(const std::string& path, std::uint64_t bytes) {
  struct statvfs space {};
  if (::statvfs(path.c_str(), &space) != 0 || space.f_blocks == 0) return {};
  const std::uint64_t left = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (left >= std::max(bytes, kNextToNothing)) return {};
  return fmt::format("no space on {}: {} bytes are left, expected {} or more", path, left,
                     std::max(bytes, kNextToNothing));
}

std::string no_room_on(const std::string& path) {
  return no_space_on(path, kRunBytes);
}

std::string last_words(const std::string& path, std::size_t bytes) {
  constexpr std::size_t kRead = std::size_t{256} << 10;  // a report is long, and its end a legend
  const int fd = open_regular(AT_FDCWD, path, O_RDONLY);
  if (fd < 0) return {};
  struct stat info {};
  std::string text;
  if (::fstat(fd, &info) == 0) {
    const auto size = static_cast<std::size_t>(info.st_size);
    text.resize(std::min(size, kRead));
    const ssize_t got =
        ::pread(fd, text.data(), text.size(), static_cast<off_t>(size - text.size()));
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  ::close(fd);
  std::string_view left = text;
  if (const auto report = left.find("Sanitizer: "); report != std::string_view::npos) {
    const auto begin = left.rfind('\n', report);
    left = left.substr(begin == std::string_view::npos ? 0 : begin + 1, bytes);
  } else if (left.size() > bytes) {
    left.remove_prefix(left.size() - bytes);
  }
  std::string words;
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
