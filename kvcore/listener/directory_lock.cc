#include "kvcore/listener/directory_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "kvcore/base/unique_fd.h"

namespace kv {
namespace {

// The process that has the lock, by the kernel's list; 0: it cannot be seen from here.
pid_t holder_of(int directory) {
  struct stat own {};
  if (::fstat(directory, &own) != 0) return 0;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    int pid = 0;
    unsigned int high = 0, low = 0;
    unsigned long long inode = 0;
    // "1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF"; one that waits has "->".
    if (std::sscanf(line.c_str(), "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &high, &low, &inode) ==
            4 &&
        inode == own.st_ino && high == major(own.st_dev) && low == minor(own.st_dev)) {
      return pid;
    }
  }
  return 0;
}

std::string name_of(pid_t pid) {
  if (pid <= 0) return "a process that cannot be seen from here";
  if (pid == ::getpid()) return "this process";
  std::string name;
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::getline(comm, name);
  return "process " + std::to_string(pid) + (name.empty() ? "" : " (" + name + ")");
}

// What there is to wait for: that somebody closes the directory, as all do who give the lock up,
// or that the process that has it is gone. The kernel tells of a dying process's close before it
// takes its lock away, so the former alone would miss that.
class Watch {
 public:
  Status begin(int directory) {
    all_.reset(::epoll_create1(EPOLL_CLOEXEC));
    closes_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    const std::string same = "/proc/self/fd/" + std::to_string(directory);
    if (!all_ || !closes_ ||
        ::inotify_add_watch(closes_.get(), same.c_str(), IN_CLOSE_NOWRITE) < 0 ||
        !add(closes_.get())) {
      return Status::system("listener.lock", "watch", errno);
    }
    return {};
  }
  bool begun() const { return static_cast<bool>(all_); }

  void follow(pid_t pid) {
    if (pid <= 0 || pid == followed_) return;
    followed_ = pid;
    process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (process_) add(process_.get());
  }

  // As Clock::poll().
  int wait(Clock& clock, Time deadline) {
    const int events = clock.poll(all_.get(), POLLIN, deadline, "listener.lock");
    const int error = errno;
    char told[4096];
    while (::read(closes_.get(), told, sizeof told) > 0) {
    }
    pollfd gone{process_.get(), POLLIN, 0};
    if (::poll(&gone, 1, 0) > 0) process_.reset();  // once is enough
    errno = error;
    return events;
  }

 private:
  bool add(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    return ::epoll_ctl(all_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  UniqueFd all_, closes_, process_;
  pid_t followed_ = 0;
};

}  // namespace

Result<DirectoryLock> DirectoryLock::take(int directory, const std::string& path, Clock& clock,
                                          Time deadline) {
  constexpr const char* kOperation = "listener.lock";
  Watch watch;
  for (;;) {
    if (::flock(directory, LOCK_EX | LOCK_NB) == 0) return DirectoryLock(directory);
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Status::system(kOperation, path, errno);
    const pid_t holder = holder_of(directory);
    if (!watch.begun()) KV_RETURN_IF_ERROR(watch.begin(directory));
    watch.follow(holder);
    // It may have been given up before the watch stood.
    if (::flock(directory, LOCK_EX | LOCK_NB) == 0) return DirectoryLock(directory);
    const int events = watch.wait(clock, deadline);
    if (events < 0) return Status::system(kOperation, path, errno);
    if (events > 0) continue;
    if (::flock(directory, LOCK_EX | LOCK_NB) == 0) return DirectoryLock(directory);
    return Status::error(
        Code::kDeadline, kOperation, path, 0,
        name_of(holder_of(directory)) + " is starting or stopping a listener there");
  }
}

DirectoryLock::~DirectoryLock() {
  if (directory_ < 0) return;
  ::flock(directory_, LOCK_UN);
  // Its close is what wakes those who wait.
  const UniqueFd bell(::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace kv
