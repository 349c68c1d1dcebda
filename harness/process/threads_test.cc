#include "harness/process/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

namespace kv::drill {
namespace {

using ::testing::IsEmpty;

std::uint64_t nothing_recorded() {
  return 0;
}

// A number in memory that children share with the test.
class Shared {
 public:
  Shared()
      : value_(static_cast<std::atomic<std::int64_t>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { ::munmap(value_, 4096); }
  std::atomic<std::int64_t>& operator*() { return *value_; }

 private:
  std::atomic<std::int64_t>* value_;
};

// A child that runs the body and is killed at the end. Threads that it has before the body begins
// are a sanitizer's own: they are ignored, as a drill ignores them.
class Forked {
 public:
  explicit Forked(const std::function<void()>& body) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    watched_.pid = ::fork();
    if (watched_.pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::thread([] {}).join();  // with the first one, a sanitizer starts one of its own
      const pid_t main = ::getpid();
      for (const auto& thread : look({{main, {}}})) {
        if (thread.tid != main && ::write(ready[1], &thread.tid, sizeof thread.tid) < 0) ::_exit(1);
      }
      ::close(ready[0]);
      ::close(ready[1]);
      body();
      ::_exit(0);
    }
    ::close(ready[1]);
    for (pid_t tid; ::read(ready[0], &tid, sizeof tid) == sizeof tid;) {
      watched_.ignore.push_back(tid);
    }
    ::close(ready[0]);
  }
  ~Forked() {
    ::kill(pid(), SIGKILL);
    ::waitpid(pid(), nullptr, 0);
  }
  Forked(const Forked&) = delete;
  pid_t pid() const { return watched_.pid; }
  const Watched& watched() const { return watched_; }

 private:
  Watched watched_;
};

std::vector<ThreadState> look_at(const Forked& child) {
  return look({child.watched()});
}

Motion motion_of(std::initializer_list<const Forked*> children) {
  std::vector<Watched> watched;
  for (const Forked* child : children) watched.push_back(child->watched());
  return motion(watched, nothing_recorded);
}

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

// Looks until the main thread of the child is asleep in that call; its state then.
ThreadState asleep_in(pid_t pid, const std::vector<std::string>& calls) {
  for (;;) {
    for (const auto& thread : look({{pid, {}}})) {
      const bool there = std::find(calls.begin(), calls.end(), thread.call) != calls.end();
      if (thread.tid == pid && thread.state == 'S' && there) return thread;
    }
  }
}

void expect_stuck_in(const std::vector<std::string>& calls, const std::function<void()>& body) {
  const Forked child(body);
  EXPECT_FALSE(asleep_in(child.pid(), calls).timed) << calls[0];
  EXPECT_EQ(motion_of({&child}), Motion::kStuck) << calls[0];
}

void expect_timed_in(const std::vector<std::string>& calls, const std::function<void()>& body) {
  const Forked child(body);
  EXPECT_TRUE(asleep_in(child.pid(), calls).timed) << calls[0];
  EXPECT_EQ(motion_of({&child}), Motion::kTimed) << calls[0];
}

ThreadState sleeper(pid_t tid, std::uint64_t switches) {
  ThreadState thread;
  thread.pid = 1;
  thread.tid = tid;
  thread.state = 'S';
  thread.switches = switches;
  thread.call = "futex";
  return thread;
}

TEST(Judge, AThreadThatRanBetweenTheLooksIsMoving) {
  EXPECT_EQ(judge({sleeper(1, 5), sleeper(2, 9)}, {sleeper(1, 5), sleeper(2, 9)}), Motion::kStuck);
  EXPECT_EQ(judge({sleeper(1, 5), sleeper(2, 9)}, {sleeper(1, 5), sleeper(2, 10)}),
            Motion::kMoving);
}

TEST(Judge, AThreadThatCameOrWentIsMotion) {
  EXPECT_EQ(judge({sleeper(1, 5)}, {sleeper(1, 5), sleeper(2, 0)}), Motion::kMoving);
  EXPECT_EQ(judge({sleeper(1, 5), sleeper(2, 0)}, {sleeper(1, 5)}), Motion::kMoving);
}

TEST(Judge, EitherLookMayShowTheMotion) {
  const auto like = [](char state, const char* call, bool timed) {
    ThreadState thread = sleeper(1, 5);
    thread.state = state;
    thread.call = call;
    thread.timed = timed;
    return thread;
  };
  const std::vector<ThreadState> asleep = {like('S', "futex", false)};
  EXPECT_EQ(judge(asleep, asleep), Motion::kStuck);
  for (const auto& moving :
       {like('R', "running", false), like('D', "openat", false), like('S', "running", false)}) {
    EXPECT_EQ(judge({moving}, asleep), Motion::kMoving) << moving.state << " " << moving.call;
    EXPECT_EQ(judge(asleep, {moving}), Motion::kMoving) << moving.state << " " << moving.call;
  }
  const ThreadState timed = like('S', "futex", true);
  EXPECT_EQ(judge({timed}, asleep), Motion::kTimed);
  EXPECT_EQ(judge(asleep, {timed}), Motion::kTimed);
}

TEST(Judge, ALimitOfTimeIsToldApartFromWhoeverRuns) {
  ThreadState timed = sleeper(1, 5), hidden = sleeper(2, 1), runs = sleeper(2, 1);
  timed.timed = true;
  hidden.call = "?";
  runs.state = 'R';
  EXPECT_EQ(judge({timed, sleeper(2, 1)}, {timed, sleeper(2, 1)}), Motion::kTimed);
  EXPECT_EQ(judge({timed, hidden}, {timed, hidden}), Motion::kUnknown);
  EXPECT_EQ(judge({timed, runs}, {timed, runs}), Motion::kMoving);
}

TEST(Judge, WhatTheKernelDoesNotShowIsUnknownUnlessSomebodyElseMoves) {
  ThreadState hidden = sleeper(1, 5), elsewhere = hidden, runs = sleeper(2, 1);
  hidden.call = "?";
  elsewhere.call = "none";
  runs.state = 'R';
  EXPECT_EQ(judge({hidden}, {hidden}), Motion::kUnknown);
  EXPECT_EQ(judge({elsewhere}, {elsewhere}), Motion::kUnknown);
  EXPECT_EQ(judge({hidden, runs}, {hidden, runs}), Motion::kMoving);
}

TEST(Motion, AWaitWithoutALimitIsStuck) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  char byte;
  expect_stuck_in({"read"}, [&] { std::exit(static_cast<int>(::read(pipe[0], &byte, 1))); });
  struct pollfd in = {pipe[0], POLLIN, 0};
  expect_stuck_in({"poll", "ppoll"}, [&] { ::poll(&in, 1, -1); });
  expect_stuck_in({"poll", "ppoll"}, [&] { ::ppoll(&in, 1, nullptr, nullptr); });
  expect_stuck_in({"pause", "ppoll"}, [] { sleep_for_ever(); });
  expect_stuck_in({"epoll_wait", "epoll_pwait"}, [] {
    struct epoll_event event {};
    ::epoll_wait(::epoll_create1(0), &event, 1, -1);
  });
  expect_stuck_in({"select", "pselect6"}, [] { ::select(0, nullptr, nullptr, nullptr, nullptr); });
  expect_stuck_in({"futex"}, [] {
    int word = 0;
    ::syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, nullptr, nullptr, 0);
  });
  expect_stuck_in({"rt_sigtimedwait"}, [] {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    ::sigwaitinfo(&set, nullptr);
  });
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Motion, AWaitWithALimitIsMoving) {
  const struct timespec hour = {3600, 0};
  expect_timed_in({"poll", "ppoll"}, [] { ::poll(nullptr, 0, 3'600'000); });
  expect_timed_in({"ppoll"}, [&] { ::ppoll(nullptr, 0, &hour, nullptr); });
  expect_timed_in({"epoll_wait", "epoll_pwait"}, [] {
    struct epoll_event event {};
    ::epoll_wait(::epoll_create1(0), &event, 1, 3'600'000);
  });
  expect_timed_in({"select", "pselect6"}, [] {
    struct timeval limit = {3600, 0};
    ::select(0, nullptr, nullptr, nullptr, &limit);
  });
  expect_timed_in({"nanosleep", "clock_nanosleep"}, [&] { ::nanosleep(&hour, nullptr); });
  expect_timed_in({"futex"}, [&] {
    int word = 0;
    ::syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, &hour, nullptr, 0);
  });
  expect_timed_in({"futex"}, [] {  // FUTEX_WAIT_BITSET, with an absolute limit
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until {};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600;
    ::pthread_mutex_lock(&mutex);
    ::pthread_cond_timedwait(&condition, &mutex, &until);
  });
  expect_timed_in({"rt_sigtimedwait"}, [&] {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    ::sigtimedwait(&set, nullptr, &hour);
  });
}

TEST(Motion, AnArmedTimerFdWillEndAWait) {
  const auto wait_with_timer = [](time_t seconds) {
    const struct itimerspec time = {{0, 0}, {seconds, 0}};
    const int timer = ::timerfd_create(CLOCK_MONOTONIC, 0);
    ::timerfd_settime(timer, 0, &time, nullptr);
    struct epoll_event event {};
    ::epoll_wait(::epoll_create1(0), &event, 1, -1);
  };
  expect_stuck_in({"epoll_wait", "epoll_pwait"}, [&] { wait_with_timer(0); });
  const Forked armed([&] { wait_with_timer(3600); });
  asleep_in(armed.pid(), {"epoll_wait", "epoll_pwait"});
  EXPECT_EQ(motion_of({&armed}), Motion::kTimed);
}

TEST(Motion, AComputingThreadIsMoving) {
  Shared turns;
  const Forked child([&] {
    for (;;) ++*turns;
  });
  const Forked sleeper(sleep_for_ever);
  asleep_in(sleeper.pid(), {"pause", "ppoll"});
  while (*turns == 0) {
  }
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(motion_of({&sleeper, &child}), Motion::kMoving);
  }
}

TEST(Motion, AStoppedProcessIsNotMoving) {
  Shared turns;
  const Forked child([&] {
    for (;;) ++*turns;
  });
  while (*turns == 0) {
  }
  ::kill(child.pid(), SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED), 0);
  EXPECT_EQ(motion_of({&child}), Motion::kStuck);
  ::kill(child.pid(), SIGCONT);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WCONTINUED), 0);
  EXPECT_EQ(motion_of({&child}), Motion::kMoving);
}

TEST(Motion, TheDeadAreNotMoving) {
  const Forked child([] {});
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(look_at(child).at(0).state, 'Z');
  EXPECT_EQ(motion_of({&child}), Motion::kStuck);
  ASSERT_EQ(::waitpid(child.pid(), nullptr, 0), child.pid());
  EXPECT_THAT(look_at(child), IsEmpty());
  EXPECT_EQ(motion_of({&child}), Motion::kStuck);
}

TEST(Motion, AnEventOnTheBoardIsMotion) {
  const Forked child(sleep_for_ever);
  asleep_in(child.pid(), {"pause", "ppoll"});
  std::uint64_t sequence = 0;
  EXPECT_EQ(motion({child.watched()}, [&] { return sequence++; }), Motion::kMoving);
}

// A pair hands a byte to and fro a number of times, then both wait for ever. "Stuck" may be said of
// it only once the number is reached: at most moments between, both seem to be asleep.
TEST(Motion, APairThatHandsAByteOverASocketMovesUntilItIsDone) {
  constexpr int kRounds = 200, kHandovers = 20;
  int to_first[2], pair[2];
  ASSERT_EQ(::pipe(to_first), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Shared done;
  const auto hand_over = [&](int fd, bool begins) {
    char byte = 0;
    for (;;) {
      if (begins && ::read(to_first[0], &byte, 1) != 1) ::_exit(1);
      for (int i = 0; i < kHandovers; ++i) {
        if (begins && ::write(fd, &byte, 1) != 1) ::_exit(1);
        if (::read(fd, &byte, 1) != 1) ::_exit(1);
        ++*done;
        if (!begins && ::write(fd, &byte, 1) != 1) ::_exit(1);
      }
    }
  };
  const Forked first([&] { hand_over(pair[0], true); });
  const Forked second([&] { hand_over(pair[1], false); });
  std::int64_t expected = 0;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_EQ(::write(to_first[1], "x", 1), 1);
    expected += 2 * kHandovers;
    while (motion_of({&first, &second}) == Motion::kMoving) {
    }
    ASSERT_EQ(*done, expected) << "said to be stuck in the middle of round " << round;
  }
  for (const int fd : {to_first[0], to_first[1], pair[0], pair[1]}) ::close(fd);
}

// The same within one process, through a mutex and a condition.
TEST(Motion, ThreadsThatHandATurnOverAConditionMoveUntilTheyAreDone) {
  constexpr int kRounds = 200, kHandovers = 20;
  int start[2];
  ASSERT_EQ(::pipe(start), 0);
  Shared done;
  const Forked child([&] {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
    std::int64_t turns = 0, end = 0;  // thread 0 takes the even turns, thread 1 the odd ones
    const auto take_turns = [&](int mine) {
      ::pthread_mutex_lock(&mutex);
      for (;;) {
        while (turns == end || turns % 2 != mine) ::pthread_cond_wait(&turned, &mutex);
        *done = ++turns;
        ::pthread_cond_broadcast(&turned);
      }
    };
    std::thread even(take_turns, 0), odd(take_turns, 1);
    for (char byte; ::read(start[0], &byte, 1) == 1;) {
      ::pthread_mutex_lock(&mutex);
      end += 2 * kHandovers;
      ::pthread_cond_broadcast(&turned);
      ::pthread_mutex_unlock(&mutex);
    }
    ::_exit(1);
  });
  for (int round = 1; round <= kRounds; ++round) {
    ASSERT_EQ(::write(start[1], "x", 1), 1);
    while (motion_of({&child}) == Motion::kMoving) {
    }
    ASSERT_EQ(*done, round * 2 * kHandovers) << "said to be stuck in round " << round;
  }
  ::close(start[0]);
  ::close(start[1]);
}

TEST(Motion, ThreadsToIgnoreDoNotCount) {
  Shared sleeper;
  const Forked child([&] {
    std::thread other([&] {
      *sleeper = ::syscall(SYS_gettid);
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    });
    sleep_for_ever();
  });
  asleep_in(child.pid(), {"pause", "ppoll"});
  while (*sleeper == 0) {
  }
  EXPECT_NE(motion_of({&child}), Motion::kStuck);
  std::vector<Watched> watched = {child.watched()};
  watched[0].ignore.push_back(static_cast<pid_t>(*sleeper));
  EXPECT_EQ(look(watched).size(), look_at(child).size() - 1);
  EXPECT_EQ(motion(watched, nothing_recorded), Motion::kStuck);
}

TEST(Threads, AreShownWithNameAndCall) {
  const Forked child([] {
    ::prctl(PR_SET_NAME, "odd) S (name");
    ::poll(nullptr, 0, 3'600'000);
  });
  const ThreadState thread = asleep_in(child.pid(), {"poll", "ppoll"});
  EXPECT_EQ(thread.comm, "odd) S (name");
  EXPECT_EQ(thread.pid, child.pid());
  const std::string tid = std::to_string(thread.tid);
  EXPECT_EQ(to_string(thread, "worker.reactor"),
            "worker.reactor (tid " + tid + "): asleep in " + thread.call + ", with a time limit");
  ThreadState other = thread;
  other.state = 'T';
  EXPECT_EQ(to_string(other, ""), "odd) S (name (tid " + tid + "): stopped");
}

TEST(Threads, CallsHaveTheirNames) {
  EXPECT_EQ(syscall_name(SYS_futex), "futex");
  EXPECT_EQ(syscall_name(SYS_recvfrom), "recvfrom");
  EXPECT_EQ(syscall_name(99'999), "syscall 99999");
}

}  // namespace
}  // namespace kv::drill
