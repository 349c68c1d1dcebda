#include "harness/drill/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "harness/base/files.h"
#include "harness/base/interrupts.h"
#include "harness/drill/run_folder.h"
#include "harness/process/process.h"

namespace kv::drill {
namespace {

constexpr int kTickMs = 1000;
// Guards against processes that not even SIGKILL ends.
constexpr int kKillLimitMs = 10'000;

struct Running {
  std::size_t index = 0;
  Supervisor supervisor;
  std::string line;
};

// Lets a run go on that stands still, when the person says so. One run stands at a time.
class Gate {
 public:
  Gate() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "a pipe for --pause-at");
    }
  }
  ~Gate() {
    for (const int end : ends_) ::close(end);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  int read_end() const { return ends_[0]; }

  void close() { closed_ = true; }
  bool closed() const { return closed_; }
  // Standard input is readable: a whole line, or its end, opens the gate.
  void listen() {
    char c = 0;
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n == 1 && c != '\n') return;
    if (::isatty(STDIN_FILENO) == 0) std::fputc('\n', stderr);  // no Enter has ended the prompt
    closed_ = false;
    (void)write_all(ends_[1], "\n");
  }

 private:
  int ends_[2] = {-1, -1};
  bool closed_ = false;
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

DrillResult error_of(const Job& job, std::string why) {
  DrillResult result;
  result.name = job.drill->full_name();
  result.file = job.drill->position.file;
  result.arm = job.drill->arm;
  result.verdict = Verdict::kError;
  result.repeat = job.options.repeat;
  result.checks.push_back({"supervisor", Verdict::kError, std::move(why), job.drill->position});
  return result;
}

class Run {
 public:
  Run(const std::vector<Job>& jobs, int parallel, const RunWatch& watch)
      : jobs_(jobs), parallel_(std::max(1, parallel)), watch_(watch), strangers_(own_children()) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }

  RunEnd go() {
    while (next_ < jobs_.size() || !running_.empty()) {
      bool any = false;
      while (next_ < jobs_.size() && running_.size() < static_cast<std::size_t>(parallel_)) {
        if (!start()) any = true;
        if (!refused_.empty()) break;
      }
      if (!running_.empty() && wait()) any = true;
      if (any && !hand_over()) return end(RunEnd::kStopped);
      if (interrupted_) return end(RunEnd::kInterrupted);
    }
    return RunEnd::kAll;
  }

 private:
  // False: it could not be started, with nobody to wait for, and has its result already.
  bool start() {
    const Job& job = jobs_[next_];
    Running running;
    running.index = next_;
    refused_.clear();
    try {
      RunOptions options = job.options;
      if (options.pause_at) {
        if (!gate_) gate_.emplace();
        options.pause_by.go = gate_->read_end();
      }
      running.supervisor = fork_drill(*job.drill, options, lifeline_.read_end());
    } catch (const std::system_error& error) {
      refused_ = error.what() + advice_on_fork(error.code().value());
      if (!running_.empty()) return true;
      ready_[next_++] = error_of(job, refused_);
      return false;
    }
    ++next_;
    running_.push_back(std::move(running));
    if (watch_.started) watch_.started(running_.back().index);
    return true;
  }

  // Waits until a supervisor says something or a signal comes; true when a job has ended.
  bool wait() {
    std::vector<pollfd> fds;
    fds.push_back({interrupts_.fd(), POLLIN, 0});
    fds.push_back({gate_ && gate_->closed() ? STDIN_FILENO : -1, POLLIN, 0});
    const std::size_t first = fds.size();
    for (const Running& running : running_) {
      fds.push_back({running.supervisor.result_fd, POLLIN, 0});
    }
    const int ready = ::poll(fds.data(), fds.size(), watch_.tick ? kTickMs : -1);
    if (ready == 0) watch_.tick();
    if (ready <= 0) return false;
    if (fds[0].revents != 0) {
      interrupts_.take();
      interrupted_ = true;
    }
    if (fds[1].revents != 0) gate_->listen();
    bool any = false;
    for (std::size_t i = running_.size(); i-- > 0;) {
      if (fds[first + i].revents == 0) continue;
      const bool ended_now = read_result(running_[i]);
      take_pause(running_[i]);
      if (!ended_now) continue;
      const Running ended = std::move(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      ready_[ended.index] = finish(ended);
      if (watch_.ended) watch_.ended(ended.index);
      any = true;
    }
    return any;
  }

  void take_pause(Running& running) {
    const auto end = running.line.find('\n');
    if (!gate_ || end == std::string::npos) return;
    const auto pause = pause_from_line(std::string_view(running.line).substr(0, end));
    if (!pause) return;
    running.line.erase(0, end + 1);
    gate_->close();
    if (watch_.paused) watch_.paused(*pause);
  }

  // Reaps the supervisor, which is no longer among the running ones.
  DrillResult finish(const Running& running) {
    const Job& job = jobs_[running.index];
    const pid_t pid = running.supervisor.pid;
    ::close(running.supervisor.result_fd);
    if (auto result = result_from_json(running.line)) {
      reap(pid);
      return *std::move(result);
    }
    const std::string identity = process_identity(pid);  // before its number can be another's
    const int status = reap(pid);
    const bool all_ended = end_what_it_left();
    std::string why = "the drill's supervisor gave no result and ";
    why += WIFSIGNALED(status) ? "was killed by signal " + std::to_string(WTERMSIG(status))
                               : "exited with code " + std::to_string(WEXITSTATUS(status));
    if (!all_ended) why += "; a process that it left behind cannot be ended";
    DrillResult result = error_of(job, std::move(why));
    result.folder = RunFolder::of(job.options.runs_folder, identity);
    return result;
  }

  // Supervisors that live keep their orphans; so every other child of ours was a dead one's, except
  // those that we had before.
  bool end_what_it_left() const {
    std::vector<pid_t> spared = strangers_;
    for (const Running& running : running_) spared.push_back(running.supervisor.pid);
    return end_descendants(kKillLimitMs, nullptr, spared);
  }

  bool hand_over() {
    for (auto it = ready_.find(reported_); it != ready_.end(); it = ready_.find(reported_)) {
      DrillResult result = std::move(it->second);
      ready_.erase(it);
      if (!watch_.done(reported_++, std::move(result))) return false;
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
    running_.clear();
    return how;
  }

  const std::vector<Job>& jobs_;
  const int parallel_;
  const RunWatch& watch_;
  const std::vector<pid_t> strangers_;
  Lifeline lifeline_;
  Interrupts interrupts_;
  std::optional<Gate> gate_;  // of jobs that stand still
  std::vector<Running> running_;
  std::map<std::size_t, DrillResult> ready_;
  std::size_t next_ = 0, reported_ = 0;
  std::string refused_;  // why no supervisor could be started just now
  bool interrupted_ = false;
};

}  // namespace

RunEnd run_jobs(const std::vector<Job>& jobs, int parallel, const RunWatch& watch) {
  return Run(jobs, parallel, watch).go();
}

}  // namespace kv::drill
