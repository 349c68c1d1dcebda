#include "kvcore/listener/listener_files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "kvcore/hook.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

constexpr const char* kStart = "listener.start";
constexpr int kBacklog = 512;
constexpr std::string_view kDescriptors = "/proc/self/fd/";
// Bytes of a socket's name: its address has those of its directory's descriptor before it.
constexpr std::size_t kNameLimit = kSocketPathLimit - kDescriptors.size() - sizeof "2147483647";
// Closed to others, and marked as made by a start from the moment on that it is there.
constexpr mode_t kMode = S_ISVTX | 0700;
// Times that create() begins again because another worker, leaving, removed the directory that it
// had just made sure of. Each round needs another such worker.
constexpr int kRounds = 16;

// The parts of `path` behind `root`, both tidy: the directories on the way, then the socket's name.
Result<std::vector<std::string>> parts_below(const std::string& path, const std::string& root) {
  const std::string prefix = root == "/" ? root : root + "/";
  std::vector<std::string> parts;
  if (!root.empty() && path.starts_with(prefix)) {
    for (std::size_t at = prefix.size(), end = at; at < path.size(); at = end + 1) {
      end = std::min(path.find('/', at), path.size());
      parts.push_back(path.substr(at, end - at));
      if (parts.back() == "..") parts.clear();
      if (parts.empty()) break;
    }
  }
  if (!parts.empty()) return parts;
  return Status::error(
      Code::kInvalidArgument, kStart, path, 0,
      "the socket must lie below the root " + (root.empty() ? "''" : root) + ", without \"..\"");
}

// Through the descriptor of its directory: a path of its own could lead elsewhere by now. This is
// what the kernel shows as the socket's path, too.
sockaddr_un address_in(int directory, const std::string& name) {
  const std::string path = std::string(kDescriptors) + std::to_string(directory) + "/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

bool is_same(int fd, const struct stat& there) {
  struct stat own {};
  return ::fstat(fd, &own) == 0 && own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

// Why a directory on the way cannot be used; fine: it can.
Status usable(const struct stat& there, const std::string& path) {
  if (!S_ISDIR(there.st_mode)) {
    return Status::error(Code::kAlreadyExists, kStart, path, 0,
                         "expected a directory, found something else");
  }
  if (there.st_uid != ::geteuid()) {
    return Status::error(Code::kFailedPrecondition, kStart, path, 0,
                         "the directory belongs to user " + std::to_string(there.st_uid) +
                             ", expected user " + std::to_string(::geteuid()));
  }
  if ((there.st_mode & 0022) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", there.st_mode & 07777U);
    return Status::error(Code::kFailedPrecondition, kStart, path, 0,
                         std::string("others may write into the directory (mode ") + mode +
                             "), expected 0700; it is not ours to close");
  }
  return {};
}

}  // namespace

// ---- making

Result<SocketFile::Bound> SocketFile::create(const std::string& path, const std::string& root,
                                             const Turn& turn) {
  const std::string tidy = tidy_path(path), tidy_root = tidy_path(root);
  if (tidy.size() > kSocketPathLimit) {
    return Status::error(Code::kInvalidArgument, kStart, tidy, 0,
                         "the path has " + std::to_string(tidy.size()) + " bytes, at most " +
                             std::to_string(kSocketPathLimit) + " fit a socket's address");
  }
  KV_ASSIGN_OR_RETURN(std::vector<std::string> names, parts_below(tidy, tidy_root));
  Bound bound;
  SocketFile& file = bound.file;
  file.path_ = tidy;
  file.name_ = names.back();
  names.pop_back();
  if (file.name_.size() > kNameLimit) {
    return Status::error(Code::kInvalidArgument, kStart, tidy, 0,
                         "the socket's name has " + std::to_string(file.name_.size()) +
                             " bytes, expected at most " + std::to_string(kNameLimit));
  }
  if (tidy_root != "/") file.root_path_ = tidy_root;
  // The user's own root may be a link; only what lies below it must be none.
  const int access = names.empty() ? O_RDONLY : O_PATH;
  file.root_.reset(::open(root.c_str(), access | O_DIRECTORY | O_CLOEXEC));
  if (!file.root_) return Status::system("open", root, errno);
  bound.listening.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!bound.listening) return Status::system("socket", tidy, errno);

  Status status;
  for (int round = 0; round < kRounds; ++round) {
    status = file.bind_below(names, bound.listening.get(), turn);
    if (status.ok()) return bound;
    for (Directory& directory : file.directories_) directory.made = directory.made_here;
    // The reason is what the caller wants to know, not what the undoing met.
    static_cast<void>(file.unlink_and_remove(turn));
    file.directories_.clear();
    if (status.native() != ENOENT) break;
  }
  return status;
}

Status SocketFile::enter(const std::string& name) {
  const int above = innermost();
  Directory directory;
  directory.name = name;
  directory.path = path_at(directories_.size()) + "/" + name;
  directory.made_here = ::mkdirat(above, name.c_str(), kMode) == 0;
  if (!directory.made_here && errno != EEXIST) {
    return Status::system("mkdir", directory.path, errno);
  }
  struct stat there {};
  if (::fstatat(above, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    return Status::system("stat", directory.path, errno);
  }
  KV_RETURN_IF_ERROR(usable(there, directory.path));
  directory.made = (there.st_mode & S_ISVTX) != 0;
  directory.fd.reset(
      ::openat(above, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.fd) {
    const int failure = errno;
    if (directory.made_here) ::unlinkat(above, name.c_str(), AT_REMOVEDIR);
    return Status::system("open", directory.path, failure);
  }
  // Another one since: it is looked at anew.
  if (!is_same(directory.fd.get(), there)) return Status::system("open", directory.path, ENOENT);
  directories_.push_back(std::move(directory));
  return {};
}

Status SocketFile::bind_below(const std::vector<std::string>& names, int socket, const Turn& turn) {
  for (const std::string& name : names) KV_RETURN_IF_ERROR(enter(name));
  // Two workers that both find the same stale socket must not remove each other's new one, nor
  // take a socket for stale that is bound and does not listen yet, and a stop must not remove what
  // took its socket's place: one at a time from here on.
  KV_ASSIGN_OR_RETURN(
      const DirectoryLock lock,
      DirectoryLock::take(innermost(), path_at(directories_.size()), turn.clock, turn.deadline));
  KV_RETURN_IF_ERROR(clear_stale());
  const sockaddr_un address = address_in(innermost(), name_);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Status::system("bind", path_, errno);
  }
  struct stat own {};
  if (::fstatat(innermost(), name_.c_str(), &own, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::listen(socket, kBacklog) != 0) {
    const int failure = errno;
    ::unlinkat(innermost(), name_.c_str(), 0);
    return Status::system("listen", path_, failure);
  }
  device_ = own.st_dev;
  inode_ = own.st_ino;
  bound_ = true;
  return {};
}

// Whether the name may be bound anew; removes a socket file that nobody listens on.
Status SocketFile::clear_stale() const {
  struct stat there {};
  if (::fstatat(innermost(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? Status() : Status::system("stat", path_, errno);
  }
  if (!S_ISSOCK(there.st_mode) || there.st_uid != ::geteuid()) {
    return Status::error(Code::kAlreadyExists, kStart, path_, 0,
                         S_ISSOCK(there.st_mode)
                             ? "a socket of user " + std::to_string(there.st_uid) + " is in the way"
                             : "something that is no socket is in the way");
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return Status::system("socket", path_, errno);
  const sockaddr_un address = address_in(innermost(), name_);
  const bool reached =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (!reached && errno == ENOENT) return {};
  if (reached || errno != ECONNREFUSED) {  // also EAGAIN: somebody listens and is busy
    return Status::error(Code::kAlreadyExists, kStart, path_, 0, "another process listens on it");
  }
  if (::unlinkat(innermost(), name_.c_str(), 0) != 0 && errno != ENOENT) {
    return Status::system("unlink", path_, errno);
  }
  return {};
}

// ---- removing

Result<std::optional<DirectoryLock>> SocketFile::lock_for_removal(std::size_t depth,
                                                                  const Turn& turn) const {
  if (!step<"listener.cleanup.locked">(turn.generation)) return std::optional<DirectoryLock>();
  auto lock = DirectoryLock::take(at_depth(depth), path_at(depth), turn.clock, turn.deadline);
  step_done<"listener.cleanup.locked">(turn.generation, lock.ok() ? 1 : 0);
  if (!lock.ok()) return lock.status();
  return std::optional<DirectoryLock>(std::move(*lock));
}

Status SocketFile::unlink_own(const Turn& turn) {
  const std::int64_t generation = turn.generation;
  struct stat there {};
  if (::fstatat(innermost(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? Status() : Status::system("stat", path_, errno);
  }
  if (step<"listener.cleanup.own_socket">(generation)) {
    const bool ours = there.st_dev == device_ && there.st_ino == inode_;
    step_done<"listener.cleanup.own_socket">(generation, ours ? 1 : 0);
    if (!ours) return {};
  }
  const int failure = attempt<"listener.unlink">(generation, [&] {
    return ::unlinkat(innermost(), name_.c_str(), 0) == 0 || errno == ENOENT ? 0 : errno;
  });
  return failure == 0 ? Status() : Status::system("unlink", path_, failure);
}

Result<bool> SocketFile::remove_directory(std::size_t depth, const Turn& turn) {
  const std::int64_t generation = turn.generation;
  const Directory& directory = directories_[depth - 1];
  const int above = at_depth(depth - 1);
  struct stat there {};
  if (::fstatat(above, directory.name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return true;
    return Status::system("stat", directory.path, errno);
  }
  if (step<"listener.cleanup.own_directory">(generation)) {
    const bool ours = directory.made && is_same(directory.fd.get(), there);
    step_done<"listener.cleanup.own_directory">(generation, ours ? 1 : 0);
    if (!ours) return false;
  }
  const int failure = attempt<"listener.rmdir">(generation, [&] {
    return ::unlinkat(above, directory.name.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
  });
  if (failure == 0 || failure == ENOENT) return true;
  if (failure == ENOTEMPTY || failure == EEXIST)
    return false;  // another worker has something in it
  return Status::system("rmdir", directory.path, failure);
}

Status SocketFile::unlink_and_remove(const Turn& turn) {
  for (std::size_t depth = directories_.size(); bound_ || depth > 0; --depth) {
    KV_ASSIGN_OR_RETURN(const auto lock, lock_for_removal(depth, turn));
    if (bound_) {
      KV_RETURN_IF_ERROR(unlink_own(turn));
      bound_ = false;
    }
    if (depth == 0) break;
    KV_ASSIGN_OR_RETURN(const bool gone, remove_directory(depth, turn));
    if (!gone) break;  // and keeps all above it
  }
  return {};
}

Status SocketFile::remove(const Turn& turn) {
  KV_RETURN_IF_ERROR(unlink_and_remove(turn));
  directories_.clear();
  root_.reset();
  return {};
}

}  // namespace kv
