#include "harness/process/describe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include "harness/base/files.h"
#include "harness/base/interrupts.h"
#include "harness/process/process.h"

namespace kv::drill {
namespace {

// Guards against processes that not even SIGKILL ends.
constexpr int kKillLimitMs = 10'000;

// What the keeper's answer begins with.
constexpr char kOutput = '+', kReason = '-';

// The whole life of the keeper, a process between us and the program: as a subreaper it inherits
// whatever the program leaves behind, and ends it, also when we are no more.
[[noreturn]] void keep(const std::string& program, int limit_ms,
                       const std::map<std::string, std::string>& environment, Lifeline* lifeline,
                       int answer) {
  lifeline->cut();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);  // Ctrl-C goes to the parent alone
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto output =
      output_of(program, {"--describe"}, environment, limit_ms, lifeline->read_end());
  end_descendants(kKillLimitMs, nullptr);
  write_all(answer, output ? kOutput + *output : kReason + output.error());
  ::_exit(0);
}

// Everything up to the end of the pipe; the lifeline is cut when a signal comes.
bool read_answer(int fd, const Interrupts& interrupts, Lifeline* lifeline, std::string* answer) {
  bool interrupted = false;
  for (;;) {
    struct pollfd fds[2] = {{fd, POLLIN, 0}, {interrupted ? -1 : interrupts.fd(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) {
      interrupts.take();
      lifeline->cut();
      interrupted = true;
    }
    if (fds[0].revents == 0) continue;
    char chunk[65536];
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n > 0) answer->append(chunk, static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR)) return interrupted;
  }
}

}  // namespace

tl::expected<std::string, NoDescription> describe(
    const std::string& program, int limit_ms,
    const std::map<std::string, std::string>& environment) {
  const auto refused = [](const char* what) {
    return tl::unexpected(NoDescription{
        std::string(what) + ": " + std::generic_category().message(errno) + advice_on_fork(errno),
        false});
  };
  Lifeline lifeline;
  // Before there is anybody: a signal that comes from here on ends them first.
  const Interrupts interrupts;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return refused("cannot make a pipe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    keep(program, limit_ms, environment, &lifeline, ends[1]);
  }
  ::close(ends[1]);
  std::string answer;
  bool interrupted = false;
  if (pid > 0) interrupted = read_answer(ends[0], interrupts, &lifeline, &answer);
  const auto no_keeper = pid < 0 ? std::optional(refused("cannot start a process")) : std::nullopt;
  ::close(ends[0]);
  if (no_keeper) return *no_keeper;
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (interrupted) return tl::unexpected(NoDescription{"interrupted", true});
  if (answer.empty()) return tl::unexpected(NoDescription{"its keeper was killed", false});
  if (answer[0] == kReason) return tl::unexpected(NoDescription{answer.substr(1), false});
  return answer.substr(1);
}

}  // namespace kv::drill
