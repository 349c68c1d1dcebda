#include "harness/cli/doctor_probes.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "harness/base/files.h"
#include "harness/drill/run_folder.h"
#include "harness/process/process_internal.h"
#include "harness/process/stacks.h"

namespace kv::drill {
namespace {

std::string reason(const char* what) {
  return std::string(what) + ": " + std::generic_category().message(errno);
}

// The exit code of a child that runs `body`; -1: there was no child, or it was killed.
template <class Body>
int in_child(const Body& body) {
  const pid_t pid = ::fork();
  if (pid < 0) return -1;
  if (pid == 0) ::_exit(body());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A child that lives until its pipe is closed.
class Waiting {
 public:
  Waiting() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      char byte;
      ::_exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    ::close(ends[0]);
    hold_ = Descriptor(ends[1]);
  }
  ~Waiting() {
    hold_.close();
    while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  pid_t pid() const { return pid_; }
  void let_go() { hold_.close(); }
  void forget() { pid_ = -1; }  // somebody else took its end

 private:
  pid_t pid_ = -1;
  Descriptor hold_;
};

// A folder of its own, gone at the end; empty path: it cannot be made.
class Folder {
 public:
  explicit Folder(const std::string& below) : path_(below + "/XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Folder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool lock_whole(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

}  // namespace

std::string probe_pidfd() {
  Waiting child;
  if (child.pid() < 0) return reason("fork");
  const Descriptor pidfd(open_pidfd(child.pid()));
  if (pidfd.get() < 0) return reason("pidfd_open");
  if (!send_signal(pidfd.get(), 0)) return reason("pidfd_send_signal");
  child.let_go();
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED) != 0) {
    return reason("waitid by a pidfd");
  }
  child.forget();
  return {};
}

std::string probe_subreaper() {
  const int code = in_child([] {
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return 1;
    // A grandchild that outlives its parent becomes ours to reap.
    const pid_t parent = ::fork();
    if (parent == 0) ::_exit(::fork() < 0 ? 1 : 0);
    int ends = 0;
    while (::wait(nullptr) > 0) ++ends;
    return ends == 2 ? 0 : 1;
  });
  return code == 0 ? "" : "an orphan did not come to its subreaper";
}

std::string probe_memfd() {
  const Descriptor memory(::memfd_create("kvdrill", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0) return reason("memfd_create");
  constexpr std::size_t kBytes = 4096;
  if (::ftruncate(memory.get(), kBytes) != 0) return reason("ftruncate");
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return reason("seals");
  void* mapping = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapping == MAP_FAILED) return reason("mmap");
  ::munmap(mapping, kBytes);
  return {};
}

std::string probe_descriptors() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  const Descriptor signals(::signalfd(-1, &set, SFD_CLOEXEC));
  if (signals.get() < 0) return reason("signalfd");
  const Descriptor wake(::eventfd(0, EFD_CLOEXEC));
  return wake.get() < 0 ? reason("eventfd") : "";
}

std::string probe_runs_folder(const std::string& runs_folder) {
  const std::string path = plain_path(runs_folder);
  if (std::string why = too_long_for_sockets(path, 0); !why.empty()) return why;
  const auto folder = RunFolder::make(path);
  if (!folder) return folder.error();
  const std::string place = folder->socket_root() + "/s";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(place.begin(), place.end(), address.sun_path);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string why;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    why = reason(place.c_str());
  }
  if (std::string left = folder->remove(); why.empty()) why = std::move(left);
  return why;
}

std::string probe_locks(const std::string& below) {
  const Folder folder(below);
  const std::string path = folder.path() + "/lock";
  const Descriptor one(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const Descriptor other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (one.get() < 0 || other.get() < 0) return reason(path.c_str());
  if (!lock_whole(one.get())) return reason("F_OFD_SETLK");
  if (lock_whole(other.get())) return "two descriptions hold one lock";
  return {};
}

std::string probe_shared_memory() {
  const Folder folder("/dev/shm");
  return folder.path().empty() ? reason("/dev/shm") : "";
}

std::string probe_ptrace() {
  const Waiting child;
  if (child.pid() < 0) return reason("fork");
  // From a process that is no ancestor of it: where only ancestors may, a debugger cannot.
  const int code = in_child(
      [&child] { return ::ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr) == 0 ? 0 : errno; });
  if (code == 0) return {};
  return "attaching: " + std::generic_category().message(code < 0 ? ECHILD : code);
}

std::string probe_cores() {
  struct rlimit core {};
  if (::getrlimit(RLIMIT_CORE, &core) != 0) return reason("getrlimit");
  if (core.rlim_max == 0) return "their size is limited to 0 (ulimit -H -c)";
  std::ifstream file("/proc/sys/kernel/core_pattern");
  std::string pattern;
  std::getline(file, pattern);
  if (pattern.empty()) return "kernel.core_pattern is empty";
  return pattern.starts_with('|') ? "they go to a program (" + pattern + ")" : "";
}

std::string probe_addr2line() {
  return find_addr2line().empty() ? "not found" : "";
}

std::uint64_t limit_of_files() {
  struct rlimit files {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return files.rlim_cur == RLIM_INFINITY ? ~std::uint64_t{0} : files.rlim_cur;
}

std::uint64_t limit_of_processes() {
  struct rlimit processes {};
  if (::getrlimit(RLIMIT_NPROC, &processes) != 0) return 0;
  const std::uint64_t user =
      processes.rlim_cur == RLIM_INFINITY ? ~std::uint64_t{0} : processes.rlim_cur;
  return std::min(
      {user, number_in("/sys/fs/cgroup/pids.max"), number_in("/proc/sys/kernel/threads-max")});
}

std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : ~std::uint64_t{0};
}

}  // namespace kv::drill
