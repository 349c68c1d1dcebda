#include "harness/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <system_error>
#include <utility>

namespace kv::drill {
namespace {

// A pipe that is never written: supervisors hold the end for reading, and its end of file tells
// them that the runner is gone, however it went.
class Lifeline {
 public:
  Lifeline() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
    }
    read_ = fds[0];
    write_ = fds[1];
  }
  ~Lifeline() {
    ::close(read_);
    if (write_ >= 0) ::close(write_);
  }
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  int read_end() const { return read_; }
  void cut() {
    ::close(write_);
    write_ = -1;
  }

 private:
  int read_ = -1, write_ = -1;
};

// SIGINT and SIGTERM as a descriptor while a run lasts; as they were afterwards.
class Interrupts {
 public:
  Interrupts() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot make a signalfd");
  }
  ~Interrupts() {
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  int fd() const { return fd_; }
  // Takes what has come off the descriptor: what stays there is delivered when this object ends.
  void take() const {
    signalfd_siginfo taken;
    while (::read(fd_, &taken, sizeof taken) > 0) {
    }
  }

 private:
  int fd_ = -1;
  sigset_t before_;
};

struct Running {
  std::size_t index = 0;
  Supervisor supervisor;
  std::string line;
};

// Takes what the supervisor has written; true at its end.
bool read_result(Running& running) {
  char chunk[65536];
  for (;;) {
    const ssize_t n = ::read(running.supervisor.result_fd, chunk, sizeof chunk);
    if (n > 0) {
      running.line.append(chunk, static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0) return true;
    if (errno == EINTR) continue;
    return errno != EAGAIN;
  }
}

int reap(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

DrillResult result_of(const Job& job, const Running& running, int status) {
  if (auto parsed = result_from_json(running.line)) return *std::move(parsed);
  DrillResult result;
  result.name = job.drill->full_name();
  result.file = job.drill->position.file;
  result.arm = job.drill->arm;
  result.verdict = Verdict::kError;
  result.repeat = job.options.repeat;
  std::string why = "the drill's supervisor gave no result and ";
  why += WIFSIGNALED(status) ? "was killed by signal " + std::to_string(WTERMSIG(status))
                             : "exited with code " + std::to_string(WEXITSTATUS(status));
  result.checks.push_back({"supervisor", Verdict::kError, why, job.drill->position});
  return result;
}

class Run {
 public:
  Run(const std::vector<Job>& jobs, int parallel,
      const std::function<bool(std::size_t, DrillResult)>& done)
      : jobs_(jobs), parallel_(std::max(1, parallel)), done_(done) {}

  RunEnd go() {
    while (next_ < jobs_.size() || !running_.empty()) {
      while (next_ < jobs_.size() && running_.size() < static_cast<std::size_t>(parallel_)) start();
      if (wait() && !hand_over()) return end(RunEnd::kStopped);
      if (interrupted_) return end(RunEnd::kInterrupted);
    }
    return RunEnd::kAll;
  }

 private:
  void start() {
    const Job& job = jobs_[next_];
    Running running;
    running.index = next_++;
    running.supervisor = fork_drill(*job.drill, job.options, lifeline_.read_end());
    running_.push_back(std::move(running));
  }

  // Waits until a supervisor says something or a signal comes; true when a job has ended.
  bool wait() {
    std::vector<pollfd> fds;
    fds.push_back({interrupts_.fd(), POLLIN, 0});
    for (const Running& running : running_) {
      fds.push_back({running.supervisor.result_fd, POLLIN, 0});
    }
    if (::poll(fds.data(), fds.size(), -1) < 0) return false;
    if (fds[0].revents != 0) {
      interrupts_.take();
      interrupted_ = true;
    }
    bool any = false;
    for (std::size_t i = running_.size(); i-- > 0;) {
      if (fds[i + 1].revents == 0 || !read_result(running_[i])) continue;
      finish(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      any = true;
    }
    return any;
  }

  void finish(Running& running) {
    ::close(running.supervisor.result_fd);
    const int status = reap(running.supervisor.pid);
    ready_[running.index] = result_of(jobs_[running.index], running, status);
  }

  bool hand_over() {
    for (auto it = ready_.find(reported_); it != ready_.end(); it = ready_.find(reported_)) {
      DrillResult result = std::move(it->second);
      ready_.erase(it);
      if (!done_(reported_++, std::move(result))) return false;
    }
    return true;
  }

  RunEnd end(RunEnd how) {
    lifeline_.cut();
    for (Running& running : running_) {
      while (!read_result(running)) {
        pollfd fd{running.supervisor.result_fd, POLLIN, 0};
        ::poll(&fd, 1, -1);
      }
      ::close(running.supervisor.result_fd);
      reap(running.supervisor.pid);
    }
    return how;
  }

  const std::vector<Job>& jobs_;
  const int parallel_;
  const std::function<bool(std::size_t, DrillResult)>& done_;
  Lifeline lifeline_;
  Interrupts interrupts_;
  std::vector<Running> running_;
  std::map<std::size_t, DrillResult> ready_;
  std::size_t next_ = 0, reported_ = 0;
  bool interrupted_ = false;
};

}  // namespace

RunEnd run_jobs(const std::vector<Job>& jobs, int parallel,
                const std::function<bool(std::size_t, DrillResult)>& done) {
  return Run(jobs, parallel, done).go();
}

}  // namespace kv::drill
