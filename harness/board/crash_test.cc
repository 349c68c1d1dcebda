// Last words of a crashing thread, and stacks of living ones.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "harness/board/board.h"
#include "harness/board/kvdrill.h"
#include "harness/board/sanitizer.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

kvdrill_site point{"test.point", KVDRILL_POINT, 0, nullptr, nullptr};
const char* const kRoles[] = {"tester", nullptr};
kvdrill_engine engine{KVDRILL_CONTRACT_VERSION, "crash_test", kRoles, nullptr, &point, nullptr, 0};

// Sanitizers that handle these signals themselves come after the board and exit in their own way.
int expected_end(int signal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static_cast<void>(signal);
  return 0;
#else
  return -signal;
#endif
}
void expect_end(int end, int signal) {
  if (expected_end(signal) == 0) {
    EXPECT_NE(end, 0);
  } else {
    EXPECT_EQ(end, expected_end(signal));
  }
}

volatile int* nowhere = nullptr;
[[gnu::noinline]] void touch_nowhere() {
  *nowhere = 1;
}

class CrashTest : public ::testing::Test {
 protected:
  pid_t run(const std::function<void()>& body) {
    return drill_.fork_child("one", [&] {
      const rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      if (::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(124);
      kvdrill_attach(&engine);
      body();
    });
  }
  std::string label_of(const Event& event) {
    return drill_.board.processes().at(event.process).threads.at(event.thread).label;
  }
  static std::string first_line(const Event& event) {
    return std::string(event.text.substr(0, event.text.find('\n')));
  }

  Drill drill_;
};

TEST_F(CrashTest, AFaultLeavesItsFramesAndTheHonestStatus) {
  expect_end(drill_.exit_code(run(touch_nowhere)), SIGSEGV);
  const Event crash = drill_.wait_for(EventKind::kCrash);
  EXPECT_EQ(crash.value, SIGSEGV);
  EXPECT_EQ(label_of(crash), "main");
  // The innermost frame is the faulting instruction itself, in this program.
  EXPECT_NE(first_line(crash).find("harness_board_tests+0x"), std::string::npos) << crash.text;
  EXPECT_GT(std::count(crash.text.begin(), crash.text.end(), '\n'), 3) << crash.text;
  EXPECT_NE(crash.text.find(" __libc_start_main"), std::string::npos) << crash.text;
  EXPECT_EQ(drill_.all(EventKind::kCrash).size(), 1u);
}

TEST_F(CrashTest, AbortAndSignalsFromOutsideToo) {
  expect_end(drill_.exit_code(run([] { std::abort(); })), SIGABRT);
  EXPECT_EQ(drill_.wait_for(EventKind::kCrash).value, SIGABRT);
  const std::uint64_t from = drill_.board.next_sequence();
  const pid_t pid = run([] {
    kvdrill_ready();
    for (;;) ::pause();
  });
  drill_.wait_for(EventKind::kReady, {}, from);
  ::kill(pid, SIGFPE);
  expect_end(drill_.exit_code(pid), SIGFPE);
  EXPECT_EQ(drill_.wait_for(EventKind::kCrash, {}, from).value, SIGFPE);
}

TEST_F(CrashTest, AThreadThatTheBoardNeverMetIsNamedToo) {
  drill_.reap(run([] { std::thread(touch_nowhere).join(); }));
  EXPECT_EQ(label_of(drill_.wait_for(EventKind::kCrash)).substr(0, 7), "thread-");
}

volatile bool enough = false;
// What it does after the call keeps the compiler from turning the recursion into a loop.
[[gnu::noinline]] int exhaust(volatile char* above) {
  volatile char here[4096];
  here[0] = above[0];
  return enough ? 0 : exhaust(here) + here[0];
}

TEST_F(CrashTest, AnExhaustedStackIsReportedFromTheAlternateOne) {
  const int end = drill_.exit_code(run([] {
    std::thread([] {
      kvdrill_thread("deep");
      volatile char start = 1;
      exhaust(&start);
    }).join();
  }));
  expect_end(end, SIGSEGV);
#if !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(label_of(drill_.wait_for(EventKind::kCrash)), "deep");
#endif
}

TEST_F(CrashTest, AJumpToNowhereIsReportedWithItsCallers) {
  drill_.reap(run([] {
    void (*volatile nothing)() = nullptr;
    nothing();
    kvdrill_ready();  // so that the call is one
  }));
  const Event crash = drill_.wait_for(EventKind::kCrash);
  EXPECT_EQ(first_line(crash), "?+0x0");
  EXPECT_NE(crash.text.find("harness_board_tests+0x"), std::string::npos) << crash.text;
}

TEST_F(CrashTest, AnEarlierHandlerOfTheEngineGetsItsTurn) {
  const pid_t pid = drill_.fork_child("one", [] {
    ::signal(SIGSEGV, [](int) { ::_exit(42); });
    kvdrill_attach(&engine);
    touch_nowhere();
  });
  EXPECT_EQ(drill_.exit_code(pid), 42);
  EXPECT_EQ(drill_.wait_for(EventKind::kCrash).value, SIGSEGV);
}

TEST_F(CrashTest, AnEngineCanKeepTheHandlersAway) {
  engine.flags = KVDRILL_NO_CRASH_HANDLER;
  drill_.reap(run(touch_nowhere));
  engine.flags = 0;
  EXPECT_TRUE(drill_.all(EventKind::kCrash).empty());
}

TEST_F(CrashTest, AHeldThreadTellsItsStackAndStaysHeld) {
  const auto hold = drill_.board.give({.site = "test.point"});
  const pid_t pid = run([] {
    kvdrill_point(&point, 0);
    kvdrill_ready();
  });
  drill_.wait_for(EventKind::kActed);
  EXPECT_TRUE(drill_.board.dump_stack(pid, pid));
  const Event stack = drill_.wait_for(EventKind::kStack);
  EXPECT_EQ(label_of(stack), "main");
  EXPECT_NE(stack.text.find("libkvdrill.so+0x"), std::string::npos) << stack.text;
  EXPECT_EQ(drill_.board.state(hold).holding, 1u);
  EXPECT_TRUE(drill_.all(EventKind::kReady).empty());
  drill_.board.release(hold);
  EXPECT_EQ(drill_.exit_code(pid), 0);
}

TEST_F(CrashTest, AThreadInASystemCallTellsItsStackAndGoesOnWaiting) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = run([&ends] {
    kvdrill_ready();
    char byte = 99;
    // Elsewhere the call is restarted; only under a race detector it is not.
    while (::read(ends[0], &byte, 1) < 0 && errno == EINTR && kRaceDetector) {
    }
    ::_exit(byte);
  });
  drill_.wait_for(EventKind::kReady);
  // Asked until the answer comes from within the call: only then is there something to restart.
  bool inside = false;
  for (int i = 0; i < 1000 && !inside; ++i) {
    const std::uint64_t from = drill_.board.next_sequence();
    ASSERT_TRUE(drill_.board.dump_stack(pid, pid));
    const std::string line = first_line(drill_.wait_for(EventKind::kStack, {}, from));
    inside = line.find("libc") != std::string::npos;  // newer ones have the call in a nameless part
  }
  EXPECT_TRUE(inside || kRaceDetector);
  ASSERT_EQ(::write(ends[1], "\x07", 1), 1);
  EXPECT_EQ(drill_.exit_code(pid), 7);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(CrashTest, TheCommandThreadAnswersForItsStackToo) {
  const pid_t pid = run([] {
    kvdrill_ready();
    for (;;) ::pause();
  });
  drill_.wait_for(EventKind::kReady);
  const ProcessInfo process = drill_.board.processes().at(1);
  for (const ThreadInfo& thread : process.threads) {
    if (thread.label == "kvdrill.commands") {
      EXPECT_TRUE(drill_.board.dump_stack(pid, thread.tid));
    }
  }
  EXPECT_EQ(label_of(drill_.wait_for(EventKind::kStack)), "kvdrill.commands");
}

TEST_F(CrashTest, WhoCannotAnswerIsNotAsked) {
  EXPECT_FALSE(drill_.board.dump_stack(::getpid(), ::getpid())) << "the supervisor itself";
  const pid_t pid = drill_.fork_child("foreign", [] {
    kvdrill_add_sites(&point);  // no handler is installed in a program that did not ask
    kvdrill_ready();
    for (;;) ::pause();
  });
  drill_.wait_for(EventKind::kReady);
  EXPECT_FALSE(drill_.board.dump_stack(pid, pid));
  ::kill(pid, SIGKILL);
  EXPECT_EQ(drill_.exit_code(pid), -SIGKILL);
  EXPECT_FALSE(drill_.board.dump_stack(pid, pid));
}

}  // namespace
}  // namespace kv::drill
