#include "harness/drill/executor_situation.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "harness/board/sanitizer.h"

namespace kv::drill {
namespace {

constexpr std::int64_t kHour = 3'600'000'000'000;

Goal never(std::int64_t limit_ns = kHour) {
  return {[] { return false; }, nullptr, limit_ns, 1};
}

class SituationTest : public ::testing::Test {
 protected:
  // A process that never meets the board.
  Instance& run(const std::string& program, std::vector<std::string> arguments) {
    Launch launch;
    launch.program = program;
    launch.arguments = std::move(arguments);
    auto child = start(launch);
    EXPECT_TRUE(child) << child.error();
    spec_.name = "other";
    return situation_.add(Instance(spec_, std::move(*child), 1));
  }
  void end(Instance& instance) {
    instance.child.signal(SIGKILL);
    situation_.wait({[&instance] { return !instance.lives(); }, nullptr, kHour, 1000});
  }

  Board board_{[] {
    Board::Options options;
    options.events = 64;
    return options;
  }()};
  ProcessSpec spec_;
  Situation situation_{board_, -1, -1};
};

TEST_F(SituationTest, AGoalThatIsMetAlreadyEndsTheWaitAtOnce) {
  EXPECT_EQ(situation_.wait({[] { return true; }, nullptr, 0, 1}).how, WaitEnd::kMet);
}

TEST_F(SituationTest, WithoutAnyProcessNobodyCanMove) {
  EXPECT_EQ(situation_.wait(never()).how, WaitEnd::kStuck);
}

TEST_F(SituationTest, AProcessThatSleepsByTheClockMoves) {
  Instance& sleeper = run("/bin/sleep", {"1000"});
  EXPECT_EQ(situation_.wait(never(50'000'000)).how, WaitEnd::kDeadline);
  end(sleeper);
  EXPECT_EQ(sleeper.end, (End{true, SIGKILL, false, false}));
}

// The shell itself waits without a limit; only its child moves.
TEST_F(SituationTest, AChildOfAProcessCounts) {
  Instance& shell = run("/bin/sh", {"-c", "/bin/sleep 1000; true"});
  EXPECT_EQ(situation_.wait(never(50'000'000)).how, WaitEnd::kDeadline);
  for (const Watched& one : situation_.watched()) {
    if (one.pid != shell.child.pid()) ::kill(one.pid, SIGKILL);
  }
  situation_.wait({[&shell] { return !shell.lives(); }, nullptr, kHour, 1000});
}

// As the real driver has them.
TEST_F(SituationTest, TheThreadsOfARealDriverDoNotCount) {
  if (kRaceDetector) GTEST_SKIP() << "tsan's own thread sleeps by the clock in any process";
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::thread([] {
      ::pthread_setname_np(::pthread_self(), "cuda-EvtHandlr");
      for (;;) ::usleep(1000);
    }).detach();
    for (;;) ::pause();
  }
  const auto add = [&](Situation& situation) -> Instance& {
    return situation.add(
        Instance(spec_, Child(pid, static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), 1));
  };
  Instance& instance = add(situation_);
  EXPECT_EQ(situation_.wait(never(50'000'000)).how, WaitEnd::kDeadline);
  Situation real(board_, -1, -1, true);
  add(real);
  EXPECT_EQ(real.wait(never()).how, WaitEnd::kStuck);
  end(instance);
}

TEST_F(SituationTest, AHopelessGoalEndsTheWaitWithItsReason) {
  Goal goal = never();
  goal.hopeless = [] { return std::string("the worker has ended"); };
  const Waited waited = situation_.wait(goal);
  EXPECT_EQ(waited.how, WaitEnd::kHopeless);
  EXPECT_EQ(waited.why, "the worker has ended");
}

TEST_F(SituationTest, TheEndOfAProcessIsTakenIn) {
  const Instance& quick = run("/bin/sh", {"-c", "exit 7"});
  EXPECT_EQ(situation_.wait({[&quick] { return !quick.lives(); }, nullptr, kHour, 1000}).how,
            WaitEnd::kMet);
  EXPECT_EQ(quick.end, (End{false, 7, false, false}));
}

TEST_F(SituationTest, TheEndOfTheLifelineInterrupts) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Situation situation(board_, ends[0], -1);
  ::close(ends[1]);
  EXPECT_EQ(situation.wait(never()).how, WaitEnd::kInterrupted);
  EXPECT_TRUE(situation.interrupted());
  ::close(ends[0]);
}

TEST_F(SituationTest, AFullBoardEndsEveryWait) {
  for (int i = 0; i < 100; ++i) board_.record("x", i, 0, {});
  const Waited waited = situation_.wait(never());
  EXPECT_EQ(waited.how, WaitEnd::kOverflow);
  EXPECT_THAT(waited.why, ::testing::HasSubstr("events"));
}

TEST_F(SituationTest, EventsAreTakenInOnce) {
  board_.record("x", 1, 0, {});
  situation_.take_in();
  situation_.take_in();
  board_.record("x", 2, 0, {});
  situation_.take_in();
  ASSERT_EQ(situation_.moments().events().size(), 2u);
  EXPECT_EQ(situation_.moments().events()[1].key, 2);
}

TEST_F(SituationTest, TheNewestCallOfANameIsMeant) {
  ScriptedCall call;
  call.name = "stop";
  call.process = "worker";
  call.command = "first";
  EXPECT_EQ(situation_.add_call(call), 1u);
  call.command = "second";
  EXPECT_EQ(situation_.add_call(call), 2u);
  EXPECT_EQ(situation_.find_call("stop")->command, "second");
  EXPECT_EQ(situation_.find_call("other"), nullptr);
}

}  // namespace
}  // namespace kv::drill
