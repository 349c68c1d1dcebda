#include "kvcore/cache/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "kvcore/hook.h"

namespace kv {
namespace {

bool set_lock(int fd, short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

}  // namespace

SharedFile::SharedFile(std::string path, UniqueFd fd, void* data, std::size_t size)
    : path_(std::move(path)), fd_(std::move(fd)), data_(data), size_(size) {}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_) {}

SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedFile::~SharedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<SharedFile> SharedFile::map(std::string path, UniqueFd fd, std::size_t size) {
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return Status::system("mmap", path, errno);
  // Locks belong to a description of their own: the mapping keeps its own alive, and a driver may
  // keep the memory of a killed process for a while (seen on an H200), so that it seemed to live.
  const std::string same = "/proc/self/fd/" + std::to_string(fd.get());
  UniqueFd own(::open(same.c_str(), O_RDWR | O_CLOEXEC));
  if (!own) {
    const int error = errno;
    ::munmap(data, size);
    return Status::system("open", same + " of " + path, error);
  }
  return SharedFile(std::move(path), std::move(own), data, size);
}

Result<SharedFile> SharedFile::create(const std::string& path, std::size_t size, bool lock,
                                      const std::function<void(void*)>& fill) {
  std::string name = path + ".XXXXXX";
  UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd) return Status::system("create", path, errno);
  auto made = [&]() -> Result<SharedFile> {
    // A hole that cannot be filled any more would end the process at some later store.
    if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size)); error != 0) {
      return Status::system("allocate", path, error);
    }
    KV_ASSIGN_OR_RETURN(SharedFile file, map(path, std::move(fd), size));
    fill(file.data());
    if (lock && !file.try_lock(0)) return Status::system("lock", path, errno);
    if (::link(name.c_str(), path.c_str()) != 0) {
      if (errno != EEXIST) return Status::system("link", path, errno);
      return Status::error(Code::kAlreadyExists, "create", path, EEXIST, "the name is taken");
    }
    return file;
  }();
  ::unlink(name.c_str());
  return made;
}

Result<SharedFile> SharedFile::open(const std::string& path, std::size_t size) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return Status::error(Code::kNotFound, "open", path, errno);
  if (!fd) return Status::system("open", path, errno);
  struct stat there {};
  if (::fstat(fd.get(), &there) != 0) return Status::system("fstat", path, errno);
  if (!S_ISREG(there.st_mode) || there.st_size != static_cast<off_t>(size)) {
    return Status::error(Code::kProtocol, "open", path, 0,
                         S_ISREG(there.st_mode) ? "it has " + std::to_string(there.st_size) +
                                                      " bytes, expected " + std::to_string(size)
                                                : "it is not a regular file");
  }
  return map(path, std::move(fd), size);
}

bool SharedFile::has_its_name() const {
  struct stat named {
  }, held{};
  return ::lstat(path_.c_str(), &named) == 0 && ::fstat(fd_.get(), &held) == 0 &&
         named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

bool SharedFile::try_lock(off_t byte) {
  return set_lock(fd_.get(), F_WRLCK, byte);
}

void SharedFile::unlock(off_t byte) {
  set_lock(fd_.get(), F_UNLCK, byte);
}

Status SharedFile::unlink() {
  if (!has_its_name() && step<"shared_file.unlink.own">()) {
    step_done<"shared_file.unlink.own">();
    return {};
  }
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    return Status::system("unlink", path_, errno);
  }
  return {};
}

}  // namespace kv
