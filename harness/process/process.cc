#include "harness/process/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>

#define BOOST_PROCESS_USE_STD_FS  // its own would need a compiled library
// The first ones before the launcher: its header in 1.81 uses them without including them.
#include <boost/asio/io_context.hpp>
#include <boost/optional.hpp>
#include <boost/process/v2/posix/default_launcher.hpp>
#include <boost/process/v2/process.hpp>
#include <boost/type_traits/decay.hpp>
#include <boost/type_traits/is_convertible.hpp>

#include "harness/process/process_internal.h"

namespace kv::drill {

namespace {

namespace boost_process = boost::process::v2;

constexpr int kHighestNumber = 255;

std::string reason(int error) {
  return std::generic_category().message(error);
}

// Opens a file and moves the descriptor to `floor` or above.
Descriptor open_above(const std::string& path, int flags, int floor) {
  const Descriptor low(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (low.get() < 0) return Descriptor();
  return Descriptor(::fcntl(low.get(), F_DUPFD_CLOEXEC, floor));
}

// What runs in the child between fork and exec. All of it is prepared before the fork: every
// descriptor that is handed on lies above every number that the child shall have, so that no
// assignment overwrites the source of a later one.
struct ChildSetup {
  pid_t parent = 0;
  int folder = -1;
  std::vector<std::pair<int, int>> numbers;  // (ours, its)
  std::map<int, std::uint64_t> limits;

  // Boost calls this in the child; an error is told to the parent by errno, through Boost's pipe.
  template <class Launcher>
  boost_process::error_code on_exec_setup(Launcher&, const boost_process::filesystem::path&,
                                          const char* const*&) const {
    if (assign_descriptors() && limit() && detach()) return {};
    return {errno, boost_process::system_category()};
  }
  // Boost would go on to exit(), which runs the supervisor's exit handlers in its child. Taking any
  // arguments: version 1.81 looks for this function with other ones than it calls it with.
  template <class... Any>
  void on_exec_error(Any&&...) const {
    ::_exit(127);
  }

 private:
  bool assign_descriptors() const {
    for (const auto& [ours, its] : numbers) {
      if (::dup2(ours, its) < 0) return false;
    }
    // Boost's own closing leaves those between two listed ones open. Closing on exec, not at once:
    // the pipe on which a failing exec is reported stays usable.
    if (::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) != 0) {
      struct rlimit most {};
      if (::getrlimit(RLIMIT_NOFILE, &most) != 0) return false;
      const int end = static_cast<int>(std::min<rlim_t>(most.rlim_cur, 1 << 20));
      for (int fd = 3; fd < end; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return std::all_of(numbers.begin(), numbers.end(),
                       [](const auto& pair) { return ::fcntl(pair.second, F_SETFD, 0) == 0; });
  }
  bool limit() const {
    const struct rlimit core {};
    if (::setrlimit(RLIMIT_CORE, &core) != 0) return false;
    if (folder >= 0 && ::fchdir(folder) != 0) return false;
    return std::all_of(limits.begin(), limits.end(), [](const auto& limit) {
      const struct rlimit both { limit.second, limit.second };
      return ::setrlimit(static_cast<__rlimit_resource_t>(limit.first), &both) == 0;
    });
  }
  bool detach() const {
    if (::setpgid(0, 0) != 0) return false;
    struct sigaction normal {};
    normal.sa_handler = SIG_DFL;
    for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &normal, nullptr);
    sigset_t none;
    ::sigemptyset(&none);
    if (::sigprocmask(SIG_SETMASK, &none, nullptr) != 0) return false;
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
    // A supervisor that died before the line above has sent no signal.
    if (::getppid() != parent) ::_exit(127);
    return true;
  }
};

int floor_of(const Launch& launch) {
  int highest = 2;
  for (const auto& [ours, its] : launch.descriptors) highest = std::max(highest, its);
  return highest + 1;
}

// Fills the free numbers below `floor`: the pipe that Boost makes lies above it then, out of reach
// of the assignments in the child.
std::vector<Descriptor> fill_below(int floor, int any) {
  std::vector<Descriptor> fillers;
  for (;;) {
    Descriptor filler(::fcntl(any, F_DUPFD_CLOEXEC, 0));
    if (filler.get() < 0 || filler.get() >= floor) return fillers;
    fillers.push_back(std::move(filler));
  }
}

// The program's path from wherever the child's folder is; the error, if it is plain from here.
std::string absolute(const std::string& program) {
  std::error_code error;
  const auto path = std::filesystem::absolute(program, error);
  return error ? program : path.string();
}

std::string why_not_executed(const std::string& program, int error) {
  std::string why = "cannot start " + program + ": " + reason(error);
  if (error == ENOENT && ::access(program.c_str(), F_OK) == 0) {
    why += " (the file is there: its interpreter or loader is not)";
  }
  return why + advice_on_fork(error);
}

// Forks and executes. Everything that can be wrong with paths was checked before.
tl::expected<Child, std::string> launch_with_boost(const std::string& program,
                                                   const std::vector<std::string>& arguments,
                                                   const std::vector<const char*>& environment,
                                                   const ChildSetup& setup) {
  boost::asio::io_context context;
  boost_process::posix::default_launcher launcher;
  launcher.env = environment.data();
  for (const auto& [ours, its] : setup.numbers) launcher.fd_whitelist.push_back(its);
  boost_process::error_code error;
  bool threw = false;
  try {
    auto process = launcher(context.get_executor(), error, boost_process::filesystem::path(program),
                            arguments, setup);
    process.detach();  // its destructor would kill the child and reap it
  } catch (const std::exception&) {
    threw = true;  // the child runs, but Boost found no descriptor for its handle
  }
  Descriptor pidfd;
  if (!error && !threw) pidfd = Descriptor(open_pidfd(launcher.pid));
  if (pidfd.get() >= 0) return Child(launcher.pid, pidfd.release());
  const int number = error ? error.value() : errno;
  if (launcher.pid > 0) {  // Boost leaves the child of a failed exec as a zombie
    if (!error) ::kill(launcher.pid, SIGKILL);  // or one that runs, whom nobody could watch
    while (::waitpid(launcher.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return tl::unexpected(why_not_executed(program, number));
}

}  // namespace

tl::expected<Child, std::string> start(const Launch& launch) {
  const auto refused = [&](const std::string& what, int error) {
    return tl::unexpected("cannot start " + launch.program + ": " + what + ": " + reason(error));
  };
  for (const auto& [resource, most] : launch.limits) {
    struct rlimit ours {};
    const auto which = static_cast<__rlimit_resource_t>(resource);
    if (::getrlimit(which, &ours) == 0 && ours.rlim_max < most && ::geteuid() != 0) {
      return refused(fmt::format("its limit {}, above ours, {}", most, ours.rlim_max), EPERM);
    }
  }
  const int floor = floor_of(launch);
  std::vector<Descriptor> sources;
  ChildSetup setup{::getpid(), -1, {}, launch.limits};
  const auto hand_on = [&](Descriptor source, int its) {
    setup.numbers.emplace_back(source.get(), its);
    sources.push_back(std::move(source));
    return setup.numbers.back().first >= 0;
  };

  if (!hand_on(open_above("/dev/null", O_RDWR, floor), 0)) return refused("/dev/null", errno);
  const int null = setup.numbers.back().first;
  if (!hand_on(Descriptor(::fcntl(launch.out < 0 ? null : launch.out, F_DUPFD_CLOEXEC, floor)),
               1) ||
      !hand_on(Descriptor(::fcntl(launch.err < 0 ? null : launch.err, F_DUPFD_CLOEXEC, floor)),
               2)) {
    return refused("its output", errno);
  }
  for (const auto& [ours, its] : launch.descriptors) {
    const std::string what = "descriptor " + std::to_string(ours) + " as " + std::to_string(its);
    if (its < 3 || its > kHighestNumber) return refused(what + ", expected 3 to 255", EINVAL);
    if (!hand_on(Descriptor(::fcntl(ours, F_DUPFD_CLOEXEC, floor)), its)) {
      return refused(what, errno);
    }
  }
  if (!launch.folder.empty()) {
    sources.push_back(open_above(launch.folder, O_PATH | O_DIRECTORY, floor));
    setup.folder = sources.back().get();
    if (setup.folder < 0) return refused("folder " + launch.folder, errno);
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : launch.environment) lines.push_back(name + "=" + value);
  std::vector<const char*> environment;
  for (const auto& line : lines) environment.push_back(line.c_str());
  environment.push_back(nullptr);

  const auto fillers = fill_below(floor, null);
  return launch_with_boost(absolute(launch.program), launch.arguments, environment, setup);
}

std::string advice_on_fork(int error) {
  if (error != EAGAIN) return {};
  return ": raise `ulimit -u`, or the container's limit on processes (pids.max)";
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : "SIG" + std::string(name);
}

std::string to_string(const End& end) {
  if (end.unknown) return "an end that somebody else took note of";
  if (!end.by_signal) return "exit code " + std::to_string(end.value);
  return signal_name(end.value) + (end.core ? " (core)" : "");
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      end_(std::exchange(other.end_, std::nullopt)) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    if (pidfd_ >= 0) ::close(pidfd_);
    pid_ = std::exchange(other.pid_, 0);
    pidfd_ = std::exchange(other.pidfd_, -1);
    end_ = std::exchange(other.end_, std::nullopt);
  }
  return *this;
}

Child::~Child() {
  if (pidfd_ >= 0) ::close(pidfd_);
}

bool Child::signal(int signal) const {
  return pidfd_ >= 0 && !end_ && send_signal(pidfd_, signal);
}

std::optional<End> Child::reap() {
  if (end_ || pidfd_ < 0) return end_;
  siginfo_t info{};
  int result;
  do {
    result = ::waitid(P_PIDFD, static_cast<id_t>(pidfd_), &info, WEXITED | WNOHANG);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    end_ = End{false, 0, false, true};
  } else if (info.si_pid != 0) {
    // The kinds are told apart by the kernel's code; the two numbers alone can be equal.
    end_ = End{info.si_code != CLD_EXITED, info.si_status, info.si_code == CLD_DUMPED, false};
  }
  return end_;
}

}  // namespace kv::drill
