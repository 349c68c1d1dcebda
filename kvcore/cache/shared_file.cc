#include "kvcore/cache/shared_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "kvcore/hook.h"

namespace kv {
namespace {

// Held while the name is looked at and removed; far behind every byte that stands for a user.
constexpr off_t kNameByte = off_t{1} << 40;

bool set_lock(int fd, short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// The file behind a descriptor, for calls that want a path.
std::string link_to(const UniqueFd& fd) {
  return "/proc/self/fd/" + std::to_string(fd.get());
}

Status refuse(Code code, const std::string& path, const std::string& text) {
  return Status::error(code, "open", path, 0, text);
}

Status check(const struct stat& there, const std::string& path, std::size_t size,
             SharedFile::Owner owner) {
  if (S_ISLNK(there.st_mode)) {
    return refuse(Code::kProtocol, path, "it is a symbolic link, which is not followed");
  }
  if (!S_ISREG(there.st_mode)) return refuse(Code::kProtocol, path, "it is not a regular file");
  if (owner == SharedFile::Owner::kThisUser && there.st_uid != ::geteuid()) {
    return refuse(Code::kFailedPrecondition, path,
                  "it belongs to user " + std::to_string(there.st_uid) + ", expected user " +
                      std::to_string(::geteuid()));
  }
  if (there.st_size == static_cast<off_t>(size)) return {};
  return refuse(
      Code::kProtocol, path,
      "it has " + std::to_string(there.st_size) + " bytes, expected " + std::to_string(size));
}

}  // namespace

SharedFile::SharedFile(std::string path, UniqueFd folder)
    : path_(std::move(path)), folder_(std::move(folder)) {
  const std::size_t slash = path_.rfind('/');
  name_ = slash == std::string::npos ? path_ : path_.substr(slash + 1);
}

Result<SharedFile> SharedFile::in_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  UniqueFd fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd && errno == ENOENT) {
    return Status::error(Code::kNotFound, "open", folder, errno, "there is no such folder");
  }
  if (!fd) return Status::system("open", folder, errno);
  return SharedFile(path, std::move(fd));
}

// ---- making

Status SharedFile::make(std::string* temporary) {
  if (!step<"shared_file.nameless">()) {
    // The defect: a name of its own until it is whole, which a kill leaves behind.
    *temporary = path_ + ".XXXXXX";
    fd_.reset(::mkostemp(temporary->data(), O_CLOEXEC));
    return fd_ ? Status() : Status::system("create", path_, errno);
  }
  fd_.reset(::openat(folder_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const int failure = fd_ ? 0 : errno;
  step_done<"shared_file.nameless">(0, failure);
  if (failure == EOPNOTSUPP || failure == EISDIR) {
    return Status::error(Code::kFailedPrecondition, "create", path_, failure,
                         "the file system of its folder has no files without a name (O_TMPFILE): "
                         "choose a folder on tmpfs, as /dev/shm");
  }
  return failure == 0 ? Status() : Status::system("create", path_, failure);
}

Status SharedFile::give_name(const std::string& temporary) {
  point<"shared_file.link">();
  const int rc =
      ::linkat(AT_FDCWD, link_to(fd_).c_str(), folder_.get(), name_.c_str(), AT_SYMLINK_FOLLOW);
  const int failure = rc == 0 ? 0 : errno;
  if (!temporary.empty()) ::unlink(temporary.c_str());
  if (failure == EEXIST) {
    return Status::error(Code::kAlreadyExists, "create", path_, EEXIST, "the name is taken");
  }
  return failure == 0 ? Status() : Status::system("link", path_, failure);
}

Result<SharedFile> SharedFile::create(const std::string& path, std::string_view contents,
                                      bool lock) {
  KV_ASSIGN_OR_RETURN(SharedFile file, in_folder(path));
  std::string temporary;
  KV_RETURN_IF_ERROR(file.make(&temporary));
  KV_RETURN_IF_ERROR(file.write(0, contents.data(), contents.size()));
  if (lock && !file.try_lock(0)) return Status::system("lock", path, errno);
  KV_RETURN_IF_ERROR(file.give_name(temporary));
  return file;
}

Result<SharedFile> SharedFile::open(const std::string& path, std::size_t size, Owner owner) {
  KV_ASSIGN_OR_RETURN(SharedFile file, in_folder(path));
  // Only looked at first: to open what is no file, a device or a pipe, may already do something.
  const UniqueFd there(
      ::openat(file.folder_.get(), file.name_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!there && errno == ENOENT) return Status::error(Code::kNotFound, "open", path, errno);
  if (!there) return Status::system("open", path, errno);
  struct stat found {};
  if (::fstat(there.get(), &found) != 0) return Status::system("fstat", path, errno);
  KV_RETURN_IF_ERROR(check(found, path, size, owner));
  file.fd_.reset(::open(link_to(there).c_str(), O_RDWR | O_CLOEXEC));
  if (!file.fd_) return Status::system("open", path, errno);
  return file;
}

// ---- using

Status SharedFile::read(std::size_t at, void* to, std::size_t bytes) const {
  const ssize_t n = ::pread(fd_.get(), to, bytes, static_cast<off_t>(at));
  const int failure = errno;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (n == static_cast<ssize_t>(bytes)) return {};
  if (n < 0) return Status::system("read", path_, failure);
  return Status::error(
      Code::kProtocol, "read", path_, 0,
      "somebody has cut it off: it ends before byte " + std::to_string(at + bytes));
}

Status SharedFile::write(std::size_t at, const void* from, std::size_t bytes) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const ssize_t n = ::pwrite(fd_.get(), from, bytes, static_cast<off_t>(at));
  const int failure = n < 0 ? errno : ENOSPC;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return n == static_cast<ssize_t>(bytes) ? Status() : Status::system("write", path_, failure);
}

bool SharedFile::has_its_name() const {
  struct stat named {
  }, held{};
  return ::fstatat(folder_.get(), name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(fd_.get(), &held) == 0 && named.st_dev == held.st_dev &&
         named.st_ino == held.st_ino;
}

bool SharedFile::try_lock(off_t byte) {
  return set_lock(fd_.get(), F_WRLCK, byte);
}

void SharedFile::unlock(off_t byte) {
  set_lock(fd_.get(), F_UNLCK, byte);
}

bool SharedFile::try_lock_whole() {
  return ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0;
}

void SharedFile::unlock_whole() {
  ::flock(fd_.get(), LOCK_UN);
}

Status SharedFile::unlink() {
  // Whoever would give the name to another file removes this one first, under the same lock.
  if (!try_lock(kNameByte)) return {};
  Status status;
  if (!has_its_name() && step<"shared_file.unlink.own">()) {
    step_done<"shared_file.unlink.own">();
  } else if (::unlinkat(folder_.get(), name_.c_str(), 0) != 0 && errno != ENOENT) {
    status = Status::system("unlink", path_, errno);
  }
  unlock(kNameByte);
  return status;
}

}  // namespace kv
