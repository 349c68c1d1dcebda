// The parts of process.h that look at or run whole trees of processes.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/board/proc_stat.h"
#include "harness/process/process_internal.h"

namespace kv::drill {

namespace {

namespace fs = std::filesystem;

// A moment of wall time, by which something must have ended. Only a guard: nothing is ordered by
// it.
class Limit {
 public:
  explicit Limit(int ms) : end_ms_(now_ms() + ms) {}
  int left_ms() const {
    return static_cast<int>(
        std::clamp<std::int64_t>(end_ms_ - now_ms(), 0, std::numeric_limits<int>::max()));
  }

 private:
  static std::int64_t now_ms() {
    struct timespec now {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  }
  std::int64_t end_ms_;
};

// Waits until the process has ended or the limit is over; false: over.
bool wait_for_end(int pidfd, const Limit& limit) {
  for (;;) {
    struct pollfd end = {pidfd, POLLIN, 0};
    const int left = limit.left_ms();
    const int ready = ::poll(&end, 1, left);
    if (ready > 0) return true;
    if (ready == 0 && left == 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

struct Stat {
  char state = '?';
  pid_t parent = 0;
  std::string start;  // in clock ticks since boot
};

bool read_stat(const fs::path& folder, Stat* stat) {
  std::ifstream file(folder / "stat");
  std::string line;
  if (!std::getline(file, line, '\0')) return false;
  const auto read = parse_stat(line);
  if (!read) return false;
  stat->state = read->state;
  std::istringstream fields{std::string(read->rest)};
  fields >> stat->parent;
  stat->start = start_of(*read);
  return static_cast<bool>(fields) && !stat->start.empty();
}

bool to_pid(const std::string& text, pid_t* pid) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *pid);
  return error == std::errc() && end == text.data() + text.size();
}

std::multimap<pid_t, pid_t> children_by_parent(bool with_zombies) {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    pid_t pid = 0;
    Stat stat;
    if (!to_pid(entry->path().filename().string(), &pid)) continue;
    if (!read_stat(entry->path(), &stat)) continue;
    if (!with_zombies && (stat.state == 'Z' || stat.state == 'X')) continue;
    children.emplace(stat.parent, pid);
  }
  return children;
}

struct Ending {
  pid_t pid = 0;
  Descriptor pidfd;
};

std::vector<pid_t> children_but(const std::vector<pid_t>& spared) {
  std::vector<pid_t> pids;
  if (!has_children()) return pids;
  for (const pid_t pid : own_children()) {
    if (std::find(spared.begin(), spared.end(), pid) == spared.end()) pids.push_back(pid);
  }
  return pids;
}

// Takes the end of whoever has ended already; kills the others and returns them.
std::vector<Ending> kill_children(const std::vector<pid_t>& pids, std::vector<pid_t>* killed) {
  std::vector<Ending> endings;
  for (const pid_t pid : pids) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0) continue;
    if (info.si_pid == pid) continue;
    Descriptor pidfd(open_pidfd(pid));
    if (pidfd.get() < 0 || !send_signal(pidfd.get(), SIGKILL)) continue;
    if (killed != nullptr) killed->push_back(pid);
    endings.push_back({pid, std::move(pidfd)});
  }
  return endings;
}

// ---- output_of

constexpr std::size_t kMostOutput = std::size_t{16} << 20;
constexpr std::size_t kErrorKept = 4096;

// Both ends of a pipe; ours does not block.
struct Pipe {
  Descriptor ours, its;
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    ours = Descriptor(ends[0]);
    its = Descriptor(ends[1]);
    return ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
  }
  // Takes what is there. At the end of the stream our end is closed.
  void drain(std::string* into) {
    char bytes[65536];
    while (ours.get() >= 0 && into->size() <= kMostOutput) {
      const ssize_t got = ::read(ours.get(), bytes, sizeof bytes);
      if (got > 0) {
        into->append(bytes, static_cast<std::size_t>(got));
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        ours.close();
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }
};

struct Output {
  Pipe out, err;
  std::string text, errors;

  void take() {
    out.drain(&text);
    err.drain(&errors);
    if (errors.size() > kErrorKept) errors.erase(0, errors.size() - kErrorKept);
  }
  // Reads until the process has ended; what it says in the pipes by then is all that counts, a
  // process that it left behind may keep them open. False: over the limit of time or of size, or
  // told to stop.
  bool read_to_end(int pidfd, const Limit& limit, int stop) {
    for (;;) {
      struct pollfd fds[4] = {{pidfd, POLLIN, 0},
                              {out.ours.get(), POLLIN, 0},
                              {err.ours.get(), POLLIN, 0},
                              {stop, POLLIN, 0}};
      const int left = limit.left_ms();
      const int ready = ::poll(fds, 4, left);
      if (ready < 0 && errno != EINTR) return false;
      take();
      if (text.size() > kMostOutput) return false;
      if (ready > 0 && fds[0].revents != 0) {
        take();  // written between the look and the end
        return true;
      }
      if (ready > 0 && fds[3].revents != 0) return false;
      if (ready == 0 && left == 0) return false;
    }
  }
  std::string last_error_line() const {
    const auto end = errors.find_last_not_of("\n\r ");
    if (end == std::string::npos) return "";
    const auto before = errors.find_last_of('\n', end);
    const auto begin = before == std::string::npos ? 0 : before + 1;
    return ": " + errors.substr(begin, end + 1 - begin);
  }
};

// Kills the process group of a program and reaps the program, and those of the group that became
// our children by it (in a subreaper). Nothing: it does not even die of a kill.
std::optional<End> end_group(Child* child) {
  const pid_t group = child->pid();  // keeps meaning this group until its leader is reaped
  ::kill(-group, SIGKILL);
  if (!wait_for_end(child->pidfd(), Limit(10'000))) return std::nullopt;
  const auto end = child->reap();
  siginfo_t info{};
  while (::waitid(P_PGID, static_cast<id_t>(group), &info, WEXITED) == 0) {
  }
  return end;
}

}  // namespace

std::vector<pid_t> descendants() {
  std::vector<pid_t> found;
  if (!has_children()) return found;  // as a subreaper, then there is nobody deeper either
  const auto children = children_by_parent(false);
  const auto add_children_of = [&](pid_t parent) {
    const auto [first, last] = children.equal_range(parent);
    for (auto child = first; child != last; ++child) found.push_back(child->second);
  };
  add_children_of(::getpid());
  for (std::size_t i = 0; i < found.size(); ++i) add_children_of(pid_t{found[i]});
  return found;
}

// The kernel's list of a thread's children is exact as long as
// nobody reaps meanwhile, and only we could; without it (a kernel built so) all of /proc is read.
std::vector<pid_t> own_children() {
  std::vector<pid_t> pids;
  bool listed = false;
  std::error_code error;
  for (fs::directory_iterator thread("/proc/self/task", error), end; !error && thread != end;
       thread.increment(error)) {
    std::ifstream list(thread->path() / "children");
    listed = listed || list.is_open();
    for (pid_t pid = 0; list >> pid;) pids.push_back(pid);
  }
  if (listed) return pids;
  const auto all = children_by_parent(true);
  const auto [first, last] = all.equal_range(::getpid());
  for (auto child = first; child != last; ++child) pids.push_back(child->second);
  return pids;
}

std::string wrong_proc() {
  constexpr const char* kRemedy =
      ", expected this one's own: `mount -t proc proc /proc`, `unshare --mount-proc`";
  std::error_code error;
  const std::string self = fs::read_symlink("/proc/self", error).string();
  if (error) return std::string("/proc does not know this process") + kRemedy;
  const std::string pid = std::to_string(::getpid());
  if (self == pid) return {};
  return "/proc is of another pid namespace (there this process is " + self + ", not " + pid + ")" +
         kRemedy;
}

std::string process_identity(pid_t pid) {
  Stat stat;
  if (!read_stat("/proc/" + std::to_string(pid), &stat)) return {};
  return std::to_string(pid) + " " + stat.start;
}

std::string process_name(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  if (!std::getline(file, name)) return "?";
  return name;
}

bool end_descendants(int limit_ms, std::vector<pid_t>* killed, const std::vector<pid_t>& spared) {
  const Limit limit(limit_ms);
  for (auto left = children_but(spared); !left.empty(); left = children_but(spared)) {
    for (const auto& ending : kill_children(left, killed)) {
      if (!wait_for_end(ending.pidfd.get(), limit)) return false;
      siginfo_t info{};
      ::waitid(P_PID, static_cast<id_t>(ending.pid), &info, WEXITED | WNOHANG);
    }
    if (limit.left_ms() == 0 && !children_but(spared).empty()) return false;
  }
  return true;
}

tl::expected<std::string, std::string> output_of(
    const std::string& program, const std::vector<std::string>& arguments,
    const std::map<std::string, std::string>& environment, int limit_ms, int stop) {
  const Limit limit(limit_ms);
  Output output;
  if (!output.out.open() || !output.err.open()) {
    return tl::unexpected("cannot start " + program +
                          ": no pipe: " + std::generic_category().message(errno));
  }
  Launch launch;
  launch.program = program;
  launch.arguments = arguments;
  launch.environment = environment;
  launch.out = output.out.its.get();
  launch.err = output.err.its.get();
  auto child = start(launch);
  if (!child) return tl::unexpected(child.error());
  output.out.its.close();
  output.err.its.close();

  const bool ended = output.read_to_end(child->pidfd(), limit, stop);
  const auto end = end_group(&*child);
  if (!end) return tl::unexpected(program + " does not end, not even by a kill");
  if (output.text.size() > kMostOutput) {
    return tl::unexpected(program + " wrote more than " + std::to_string(kMostOutput) + " bytes");
  }
  if (!ended) {
    if (limit.left_ms() > 0) return tl::unexpected(program + " was stopped before its end");
    return tl::unexpected(program + " did not end within " + std::to_string(limit_ms) + " ms" +
                          output.last_error_line());
  }
  if (end->by_signal || end->value != 0 || end->unknown) {
    return tl::unexpected(program + " ended with " + to_string(*end) + output.last_error_line());
  }
  return std::move(output.text);
}

}  // namespace kv::drill
