#include "harness/process/threads.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "harness/board/proc_stat.h"

namespace kv::drill {

namespace {

namespace fs = std::filesystem;

// The contents of a small file of /proc, in one read; the errno value, if it cannot be read.
int read_small(const std::string& path, std::string* text) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  text->resize(8192);
  ssize_t got;
  do {
    got = ::read(fd, text->data(), text->size());
  } while (got < 0 && errno == EINTR);
  const int error = got < 0 ? errno : 0;
  ::close(fd);
  text->resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return error;
}

// The numbers that are the names of a folder's entries, sorted.
std::vector<pid_t> numbers_in(const std::string& folder) {
  std::vector<pid_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t number = 0;
    const auto [stop, bad] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (bad == std::errc() && stop == name.data() + name.size()) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

using Arguments = std::array<std::uint64_t, 6>;

bool futex_is_timed(const Arguments& args) {
  switch (static_cast<std::int32_t>(args[1]) & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_LOCK_PI:
    case FUTEX_WAIT_BITSET:
    case FUTEX_WAIT_REQUEUE_PI:
#ifdef FUTEX_LOCK_PI2
    case FUTEX_LOCK_PI2:
#endif
      return args[3] != 0;
    default:
      return false;  // for the others that argument is a number
  }
}

// A time limit that is an int of milliseconds: negative is none.
bool milliseconds(std::uint64_t argument) {
  return static_cast<std::int32_t>(argument) >= 0;
}

// Whether a call has a time limit that will end it. Calls that do not exist on every machine are
// guarded; a limit that is a pointer is one when it is not null.
bool is_timed(long number, const Arguments& args) {
  switch (number) {
    case SYS_futex:
      return futex_is_timed(args);
#ifdef SYS_poll
    case SYS_poll:
      return milliseconds(args[2]);
#endif
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
      return milliseconds(args[3]);
#endif
#ifdef SYS_select
    case SYS_select:
      return args[4] != 0;
#endif
    case SYS_epoll_pwait:
      return milliseconds(args[3]);
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2:
      return args[3] != 0;
#endif
#ifdef SYS_futex_waitv
    case SYS_futex_waitv:
      return args[3] != 0;
#endif
#ifdef SYS_futex_wait
    case SYS_futex_wait:
      return args[4] != 0;
#endif
    case SYS_ppoll:
    case SYS_rt_sigtimedwait:
      return args[2] != 0;
    case SYS_semtimedop:
      return args[3] != 0;
    case SYS_pselect6:
    case SYS_mq_timedsend:
    case SYS_mq_timedreceive:
    case SYS_recvmmsg:
    case SYS_io_getevents:
      return args[4] != 0;
#ifdef SYS_io_pgetevents
    case SYS_io_pgetevents:
      return args[4] != 0;
#endif
    // Sleeps; the rest of an interrupted timed call; what the kernel's own work may end.
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_restart_syscall:
#ifdef SYS_io_uring_enter
    case SYS_io_uring_enter:
#endif
      return true;
    default:
      return false;
  }
}

// /proc/PID/task/TID/syscall: "running", or the call's number and six arguments, or "-1 ...".
// The kernel answers with a call only for a thread that it saw off the processor and not queued for
// one, twice, without a switch in between (wait_task_inactive in task_current_syscall).
void read_call(const std::string& folder, ThreadState* thread) {
  std::string text;
  if (read_small(folder + "syscall", &text) != 0 || text.empty()) {
    thread->call = "?";
    return;
  }
  if (text.starts_with("running")) {
    thread->call = "running";
    return;
  }
  char* at = nullptr;
  const long number = std::strtol(text.c_str(), &at, 10);
  if (number < 0) {
    thread->call = "none";
    return;
  }
  Arguments args{};
  for (auto& argument : args) argument = std::strtoull(at, &at, 16);
  thread->call = syscall_name(number);
  thread->timed = is_timed(number, args);
}

bool read_stat(const std::string& folder, ThreadState* thread) {
  std::string text;
  if (read_small(folder + "stat", &text) != 0) return false;
  const auto stat = parse_stat(text);
  if (!stat) return false;
  thread->comm = stat->name;
  thread->state = stat->state;
  return true;
}

bool read_switches(const std::string& folder, ThreadState* thread) {
  std::string text;
  if (read_small(folder + "status", &text) != 0) return false;
  thread->switches = 0;
  for (const std::string_view name :
       {"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"}) {
    const auto at = text.find(name);
    if (at == std::string::npos) return false;
    thread->switches += std::strtoull(text.c_str() + at + name.size(), nullptr, 10);
  }
  return true;
}

// A thread in state X is about to be gone, and who waits for its process has not been told yet.
bool is_dead(const ThreadState& thread) {
  return thread.state == 'Z';
}
bool is_stopped(const ThreadState& thread) {
  return thread.state == 'T';
}

// What one look at one thread allows to say.
Motion motion_of(const ThreadState& thread) {
  if (is_dead(thread) || is_stopped(thread)) return Motion::kStuck;
  // Also in 't': a debugger has stopped it, and the person before it will let it go on.
  if (thread.state != 'S') return Motion::kMoving;
  if (thread.call == "?" || thread.call == "none") return Motion::kUnknown;
  if (thread.call == "running") return Motion::kMoving;
  return thread.timed ? Motion::kTimed : Motion::kStuck;
}

Motion motion_of(const std::vector<ThreadState>& threads) {
  Motion all = Motion::kStuck;
  for (const auto& thread : threads) all = std::max(all, motion_of(thread));
  return all;
}

bool same_threads(const std::vector<ThreadState>& before, const std::vector<ThreadState>& after) {
  return std::equal(before.begin(), before.end(), after.begin(), after.end(),
                    [](const ThreadState& a, const ThreadState& b) {
                      return a.pid == b.pid && a.tid == b.tid && a.switches == b.switches;
                    });
}

// Whether the process has a timerfd that will fire: it can end a wait that has no limit of its own.
bool has_armed_timer(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  for (const pid_t fd : numbers_in(folder + "/fd")) {
    char target[64];
    const auto link = folder + "/fd/" + std::to_string(fd);
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
    if (length < 0) continue;
    if (std::string_view(target, static_cast<std::size_t>(length)) != "anon_inode:[timerfd]") {
      continue;
    }
    std::string text;
    if (read_small(folder + "/fdinfo/" + std::to_string(fd), &text) != 0) continue;
    const auto value = text.find("it_value: (");
    if (value != std::string::npos && !text.substr(value).starts_with("it_value: (0, 0)")) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<ThreadState> look(const std::vector<Watched>& processes) {
  std::vector<ThreadState> threads;
  for (const auto& process : processes) {
    const std::string tasks = "/proc/" + std::to_string(process.pid) + "/task/";
    bool any_ignored = false;
    for (const pid_t tid : numbers_in(tasks)) {
      const auto& ignored = process.ignore;
      if (std::find(ignored.begin(), ignored.end(), tid) != ignored.end()) {
        any_ignored = true;
        continue;
      }
      const std::string folder = tasks + std::to_string(tid) + "/";
      ThreadState thread;
      thread.pid = process.pid;
      thread.tid = tid;
      // In this order: see motion(). A thread that ended meanwhile is left out.
      read_call(folder, &thread);
      if (read_stat(folder, &thread) && read_switches(folder, &thread)) {
        threads.push_back(std::move(thread));
      }
    }
    // A dead leader beside threads that do not count: the process is on its way out.
    if (any_ignored && !threads.empty() && threads.back().tid == process.pid &&
        is_dead(threads.back())) {
      threads.back().state = 'X';
    }
  }
  return threads;
}

Motion judge(const std::vector<ThreadState>& before, const std::vector<ThreadState>& after) {
  if (!same_threads(before, after)) return Motion::kMoving;
  return std::max(motion_of(before), motion_of(after));
}

// Why two looks suffice, and no wakeup between them is missed.
//
// Let t be the instant between the looks. Claim: if nothing is found to move, then at t every
// thread was blocked in its call, and nothing was on its way to wake it.
//
// In each look a thread's call is read first, then its state, then its count of switches, which
// goes up whenever it leaves a processor. In the second look the kernel gave a call for it, so it
// was off the processor then. Had it been on one at t, or been put on one between t and that
// reading, it would have left it before that reading, and the second count, read later still, would
// exceed the first, which was read before t. Had it been woken before the reading but not been put
// on a processor yet, then its state, read after, would be R; or it ran and left again by then,
// which the count tells, read last. So at t nobody ran and nobody was woken.
//
// Wakeups through futexes, pipes, eventfds, unix sockets and signals happen within the call of the
// thread that causes them: with nobody running, none is in flight. What remains are wakeups by time
// (timed calls and timerfds, looked for after t: one that was armed at t is armed still, or it woke
// somebody, who moved), and by the outside. A thread in disk sleep (D) is about to be woken by a
// device and counts as moving. A new thread is started by one that runs; the sets are compared all
// the same, as a thread might end (unseen: it was dead in neither look) or start in the gap of the
// listing. The board's sequence catches an event of a process that is not looked at.
Motion motion(const std::vector<Watched>& processes,
              const std::function<std::uint64_t()>& sequence) {
  const std::uint64_t sequence_before = sequence();
  const auto before = look(processes);
  if (motion_of(before) == Motion::kMoving) return Motion::kMoving;
  const auto after = look(processes);
  Motion now = judge(before, after);
  if (now == Motion::kMoving) return now;
  for (const auto& thread : after) {
    // Once for each process that is not frozen: in a frozen one nobody would notice.
    if (thread.tid != thread.pid || is_dead(thread) || is_stopped(thread)) continue;
    if (has_armed_timer(thread.pid)) now = std::max(now, Motion::kTimed);
  }
  return sequence() == sequence_before ? now : Motion::kMoving;
}

std::string to_string(const ThreadState& thread, const std::string& label) {
  std::string text =
      (label.empty() ? thread.comm : label) + " (tid " + std::to_string(thread.tid) + "): ";
  if (is_dead(thread)) return text + "dead";
  if (is_stopped(thread)) return text + "stopped";
  if (thread.state == 't') return text + "stopped by a debugger";
  if (thread.call == "running" || thread.state == 'R') return text + "running";
  if (thread.call == "none") return text + "asleep outside of a system call";
  if (thread.call == "?") return text + "asleep, the kernel does not show where";
  return text + "asleep in " + thread.call + (thread.timed ? ", with a time limit" : "");
}

}  // namespace kv::drill
