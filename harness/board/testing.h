// For the tests of this folder: a supervisor in few lines, whose processes are forks of the test
// (running a function) or programs.
//
// Threads: the test's one thread. Ownership: every process still there is killed and reaped.
#ifndef HARNESS_BOARD_TESTING_H_
#define HARNESS_BOARD_TESTING_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/board/board.h"
#include "harness/board/layout.h"

#if defined(__SANITIZE_THREAD__)
// A process under tsan sleeps a second before it exits, unless told otherwise.
extern "C" const char* __tsan_default_options() {
  return "atexit_sleep_ms=0";
}  // NOLINT
#endif

namespace kv::drill {

// The board through a mapping of its own (left to the process): to stop in the middle of things.
inline View second_view(const Board& board) {
  struct stat file {};
  ::fstat(board.board_fd(), &file);
  void* mapping = ::mmap(nullptr, static_cast<std::size_t>(file.st_size), PROT_READ | PROT_WRITE,
                         MAP_SHARED, board.board_fd(), 0);
  return View(mapping, board.wake_fd());
}

class Drill {
 public:
  explicit Drill(const Board::Options& options = {}) : board(options) {}
  ~Drill() {
    board.release_all();
    for (const auto& [pid, pidfd] : living_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      ::close(pidfd);
    }
  }

  // A child that runs `body` with the environment of a drill, then exits 0 without exit handlers.
  pid_t fork_child(const std::string& name, const std::function<void()>& body) {
    return fork_with(
        [&] {
          body();
          ::_exit(0);
        },
        name);
  }

  pid_t start(const std::string& program, const std::string& name,
              std::vector<std::string> arguments) {
    return fork_with(
        [&] {
          ::fcntl(board.board_fd(), F_SETFD, 0);
          ::fcntl(board.wake_fd(), F_SETFD, 0);
          arguments.insert(arguments.begin(), program);
          std::vector<char*> argv;
          for (std::string& argument : arguments) argv.push_back(argument.data());
          argv.push_back(nullptr);
          ::execv(program.c_str(), argv.data());
          ::_exit(127);
        },
        name);
  }

  // The first event so far, or to come, that satisfies `wanted`, from sequence `from` on. A failure
  // of the test, and an empty event, when there is none within the guard of 60 s or when nobody who
  // could write it is left.
  Event wait_for(const std::function<bool(const Event&)>& wanted, std::uint64_t from = 0) {
    const auto guard = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < guard) {
      const bool nobody = !anybody_alive();
      const std::vector<Event> events = board.events(from);
      for (const Event& event : events) {
        if (!event.torn && wanted(event)) return event;
      }
      from += events.size();
      if (nobody && events.empty()) break;
      sleep(from);
    }
    ADD_FAILURE() << "no such event; the board has:\n" << trace();
    return {};
  }
  Event wait_for(EventKind kind, std::string_view name = {}, std::uint64_t from = 0) {
    return wait_for(
        [=](const Event& event) {
          return event.kind == kind && (name.empty() || event.name == name);
        },
        from);
  }

  // Waits for the child's end; its raw status.
  int reap(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    board.process_ended(pid);
    if (const auto it = living_.find(pid); it != living_.end()) {
      ::close(it->second);
      living_.erase(it);
    }
    return status;
  }
  int exit_code(pid_t pid) {
    const int status = reap(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::vector<Event> all(EventKind kind, std::string_view name = {}) const {
    std::vector<Event> some;
    for (const Event& event : board.events(0)) {
      if (!event.torn && event.kind == kind && (name.empty() || event.name == name)) {
        some.push_back(event);
      }
    }
    return some;
  }

  std::string trace() const {
    std::string text;
    for (const Event& event : board.events(0)) {
      text += std::to_string(event.sequence) + (event.torn ? " torn" : "") + " kind " +
              std::to_string(static_cast<int>(event.kind)) + " by " +
              std::to_string(event.process) + "/" + std::to_string(event.thread) + " " +
              std::string(event.name) + "[" + std::to_string(event.key) + "] " +
              std::to_string(event.value) + " " + std::string(event.text) + "\n";
    }
    return text;
  }

  Board board;

 private:
  pid_t fork_with(const std::function<void()>& body, const std::string& name) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(126);
      const std::string variable = Board::environment(board.board_fd(), board.wake_fd());
      const std::size_t equals = variable.find('=');
      ::setenv("KVDRILL_BOARD", variable.c_str() + equals + 1, 1);
      ::setenv("KVDRILL_PROCESS", name.c_str(), 1);
      body();
      ::_exit(125);
    }
    EXPECT_GT(pid, 0);
    living_[pid] = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    return pid;
  }

  bool anybody_alive() const {
    return std::any_of(living_.begin(), living_.end(), [](const auto& child) {
      pollfd end{child.second, POLLIN, 0};
      return ::poll(&end, 1, 0) == 0;
    });
  }

  // Until something is written, or a process has ended.
  void sleep(std::uint64_t from) {
    if (!board.arm_wake(from)) {
      std::vector<pollfd> entries{{board.wake_fd(), POLLIN, 0}};
      for (const auto& [pid, pidfd] : living_) {
        pollfd end{pidfd, POLLIN, 0};
        if (::poll(&end, 1, 0) == 0) entries.push_back(end);
      }
      ::poll(entries.data(), entries.size(), 1000);
    }
    board.disarm_wake();
  }

  std::map<pid_t, int> living_;
};

}  // namespace kv::drill

#endif  // HARNESS_BOARD_TESTING_H_
