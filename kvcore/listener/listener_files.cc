#include "kvcore/listener/listener_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "kvcore/hook.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

constexpr int kBacklog = 512;
// Times that create() begins again because another worker, leaving, removed the directory that it
// had just made sure of. Each round needs another such worker.
constexpr int kRounds = 16;

std::string parent(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return {};
  return path.substr(0, slash);
}

// The directories from the one of `path` up to, not including, `root`.
Result<std::vector<std::string>> directories_between(const std::string& path, std::string root) {
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  const std::string prefix = root == "/" ? root : root + "/";
  if (root.empty() || path.compare(0, prefix.size(), prefix) != 0 || path.back() == '/') {
    return Status::error(Code::kInvalidArgument, "listener.start", path, 0,
                         "the socket must lie below the root " + (root.empty() ? "''" : root));
  }
  std::vector<std::string> directories;
  for (std::string up = parent(path); up.size() >= prefix.size(); up = parent(up)) {
    directories.push_back(up);
  }
  return directories;
}

// Ours, and closed to everybody else.
Status make_private(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::system("mkdir", path, errno);
  }
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0) return Status::system("lstat", path, errno);
  if (!S_ISDIR(there.st_mode)) {
    return Status::error(Code::kAlreadyExists, "listener.start", path, 0,
                         "expected a directory, found something else");
  }
  if (there.st_uid != ::geteuid()) {
    return Status::error(Code::kFailedPrecondition, "listener.start", path, 0,
                         "the directory belongs to user " + std::to_string(there.st_uid) +
                             ", expected user " + std::to_string(::geteuid()));
  }
  // An engine that made it with a wider mode shares it with us; nobody else has business in it.
  if ((there.st_mode & 0077) != 0 && ::chmod(path.c_str(), 0700) != 0) {
    return Status::system("chmod", path, errno);
  }
  return {};
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Whether the path may be bound anew; removes a socket file that nobody listens on.
Status clear_stale(const std::string& path) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0) {
    return errno == ENOENT ? Status() : Status::system("lstat", path, errno);
  }
  if (!S_ISSOCK(there.st_mode)) {
    return Status::error(Code::kAlreadyExists, "listener.start", path, 0,
                         "something that is no socket is in the way");
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return Status::system("socket", path, errno);
  const sockaddr_un address = address_of(path);
  const bool reached =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (!reached && errno == ENOENT) return {};
  if (reached || errno != ECONNREFUSED) {  // also EAGAIN: somebody listens and is busy
    return Status::error(Code::kAlreadyExists, "listener.start", path, 0,
                         "another process listens on it");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Status::system("unlink", path, errno);
  return {};
}

}  // namespace

Result<SocketFile::Bound> SocketFile::create(const std::string& path, const std::string& root) {
  if (path.size() > kSocketPathLimit) {
    return Status::error(Code::kInvalidArgument, "listener.start", path, 0,
                         "the path has " + std::to_string(path.size()) + " bytes, at most " +
                             std::to_string(kSocketPathLimit) + " fit a socket's address");
  }
  Bound bound;
  bound.file.path_ = path;
  KV_ASSIGN_OR_RETURN(bound.file.directories_, directories_between(path, root));
  bound.listening.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!bound.listening) return Status::system("socket", path, errno);

  const auto attempt = [&]() -> Status {
    std::vector<std::string> downwards(bound.file.directories_.rbegin(),
                                       bound.file.directories_.rend());
    for (const std::string& directory : downwards) KV_RETURN_IF_ERROR(make_private(directory));
    // Two workers that both find the same stale socket must not remove each other's new one, nor
    // take a socket for stale that is bound and does not listen yet: one at a time from here on.
    // Whoever holds the lock makes only the few calls below.
    const std::string directory = parent(path);
    const UniqueFd lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock) return Status::system("open", directory, errno);
    int locked = 0;
    while ((locked = ::flock(lock.get(), LOCK_EX)) != 0 && errno == EINTR) {
    }
    if (locked != 0) return Status::system("flock", directory, errno);
    KV_RETURN_IF_ERROR(clear_stale(path));
    const sockaddr_un address = address_of(path);
    if (::bind(bound.listening.get(), reinterpret_cast<const sockaddr*>(&address),
               sizeof address) != 0) {
      return Status::system("bind", path, errno);
    }
    struct stat own {};
    if (::lstat(path.c_str(), &own) != 0 || ::listen(bound.listening.get(), kBacklog) != 0) {
      const int failure = errno;
      ::unlink(path.c_str());
      return Status::system("listen", path, failure);
    }
    bound.file.device_ = own.st_dev;
    bound.file.inode_ = own.st_ino;
    return {};
  };

  Status status;
  for (int round = 0; round < kRounds; ++round) {
    status = attempt();
    if (status.ok()) return bound;
    if (status.native() != ENOENT) break;
  }
  for (const std::string& directory : bound.file.directories_) ::rmdir(directory.c_str());
  return status;
}

Status SocketFile::unlink_own(std::int64_t generation) {
  struct stat there {};
  if (::lstat(path_.c_str(), &there) != 0) {
    return errno == ENOENT || errno == ENOTDIR ? Status() : Status::system("lstat", path_, errno);
  }
  if (step<"listener.cleanup.own_socket">(generation)) {
    const bool ours = there.st_dev == device_ && there.st_ino == inode_;
    step_done<"listener.cleanup.own_socket">(generation, ours ? 1 : 0);
    if (!ours) return {};
  }
  int failure = fault<"listener.unlink">(generation);
  if (failure == 0 && ::unlink(path_.c_str()) != 0 && errno != ENOENT) failure = errno;
  fault_done<"listener.unlink">(generation, failure);
  return failure == 0 ? Status() : Status::system("unlink", path_, failure);
}

Status SocketFile::remove_directories(std::int64_t generation) {
  for (const std::string& directory : directories_) {
    int failure = fault<"listener.rmdir">(generation);
    if (failure == 0 && ::rmdir(directory.c_str()) != 0) failure = errno;
    fault_done<"listener.rmdir">(generation, failure);
    // Not empty: another worker's socket keeps it, and with it all directories above.
    if (failure == ENOTEMPTY || failure == EEXIST) return {};
    if (failure != 0 && failure != ENOENT) return Status::system("rmdir", directory, failure);
  }
  return {};
}

Status SocketFile::remove(std::int64_t generation) {
  if (!unlinked_) {
    KV_RETURN_IF_ERROR(unlink_own(generation));
    unlinked_ = true;
  }
  return remove_directories(generation);
}

}  // namespace kv
