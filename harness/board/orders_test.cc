// What orders do to the threads that meet them, and how often.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "harness/board/board.h"
#include "harness/board/futex.h"
#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

kvdrill_site point{"test.point", KVDRILL_POINT, 0, nullptr, nullptr};
kvdrill_site fault{"test.fault", KVDRILL_FAULT, 0, &point, nullptr};
kvdrill_site step{"test.step", KVDRILL_STEP, 0, &fault, nullptr};
kvdrill_site note{"test.note", KVDRILL_NOTE, 0, &step, nullptr};

void answer_key(void*, const char* arguments, kvdrill_reply* reply) {
  kvdrill_point(&point, 100);  // the very point that runs it
  kvdrill_answer(reply, arguments);
}
void spoil_errno(void*, const char*, kvdrill_reply*) {
  errno = EIO;
}
const kvdrill_command kCommands[] = {{"spoil", "Sets errno.", spoil_errno},
                                     {"nested", "Reaches the point itself.", answer_key},
                                     {nullptr, nullptr, nullptr}};
const char* const kRoles[] = {"tester", nullptr};
const kvdrill_engine kEngine{
    KVDRILL_CONTRACT_VERSION, "orders_test", kRoles, kCommands, &note, nullptr, 0};

// Records what was answered, so that the test sees it.
void note_answer(std::int64_t which, std::int64_t answer) {
  kvdrill_note(&note, which, answer, nullptr);
}

class OrdersTest : public ::testing::Test {
 protected:
  pid_t run(const std::function<void()>& body, const std::string& name = "one") {
    return drill_.fork_child(name, [&] {
      kvdrill_attach(&kEngine);
      body();
    });
  }
  // What the child noted, in order.
  std::vector<std::int64_t> noted() const {
    std::vector<std::int64_t> values;
    for (const Event& event : drill_.all(EventKind::kNote)) values.push_back(event.value);
    return values;
  }
  static void five_faults() {
    for (int i = 1; i <= 5; ++i) note_answer(i, kvdrill_fault(&fault, i));
  }

  Drill drill_;
};

using Answers = std::vector<std::int64_t>;

TEST_F(OrdersTest, AFaultFailsOnce) {
  const auto order = drill_.board.give({.action = Action::kFail, .site = "test.fault", .code = 2});
  drill_.reap(run(five_faults));
  EXPECT_EQ(noted(), (Answers{2, 0, 0, 0, 0}));
  EXPECT_EQ(drill_.board.state(order).acted, 1u);
  const Event acted = drill_.wait_for(EventKind::kActed);
  EXPECT_EQ(acted.value, order);
  EXPECT_EQ(acted.text, "fail");
  EXPECT_EQ(acted.key, 1);
}

TEST_F(OrdersTest, AFaultFailsFromTheNthHitAsOftenAsAllowed) {
  drill_.board.give(
      {.action = Action::kFail, .site = "test.fault", .first_hit = 2, .times = 2, .code = 7});
  drill_.reap(run(five_faults));
  EXPECT_EQ(noted(), (Answers{0, 7, 7, 0, 0}));
}

TEST_F(OrdersTest, AFaultFailsAlwaysFromTheNthHit) {
  drill_.board.give(
      {.action = Action::kFail, .site = "test.fault", .first_hit = 3, .times = 0, .code = 7});
  drill_.reap(run(five_faults));
  EXPECT_EQ(noted(), (Answers{0, 0, 7, 7, 7}));
}

TEST_F(OrdersTest, AnOrderForAHitThatIsPastNeverActs) {
  const auto hold =
      drill_.board.give({.action = Action::kHold, .site = "test.fault", .first_hit = 4});
  const pid_t pid = run(five_faults);
  drill_.wait_for(EventKind::kActed);
  const auto late =
      drill_.board.give({.action = Action::kFail, .site = "test.fault", .first_hit = 3, .code = 7});
  drill_.board.release(hold);
  drill_.reap(pid);
  EXPECT_EQ(noted(), (Answers{0, 0, 0, 0, 0}));
  EXPECT_EQ(drill_.board.state(late).acted, 0u);
}

TEST_F(OrdersTest, AnOrderGivenWhileAThreadIsHeldMeansTheNextHit) {
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "test.fault"});
  const pid_t pid = run(five_faults);
  drill_.wait_for(EventKind::kActed);
  drill_.board.give({.action = Action::kFail, .site = "test.fault", .code = 7});
  drill_.board.release(hold);
  drill_.reap(pid);
  EXPECT_EQ(noted(), (Answers{0, 7, 0, 0, 0}));
}

TEST_F(OrdersTest, OnlyTheKeyThatWasNamed) {
  drill_.board.give(
      {.action = Action::kFail, .site = "test.fault", .key = 4, .times = 0, .code = 7});
  drill_.reap(run(five_faults));
  EXPECT_EQ(noted(), (Answers{0, 0, 0, 7, 0}));
}

TEST_F(OrdersTest, OnlyTheProcessThatWasNamed) {
  drill_.board.give(
      {.action = Action::kFail, .site = "test.fault", .process = "two", .times = 0, .code = 7});
  drill_.reap(run(five_faults, "one"));
  EXPECT_EQ(noted(), (Answers{0, 0, 0, 0, 0}));
  drill_.reap(run(five_faults, "two"));
  EXPECT_EQ(noted(), (Answers{0, 0, 0, 0, 0, 7, 7, 7, 7, 7}));
}

TEST_F(OrdersTest, OnlyTheThreadThatWasNamedAndHitsAreCountedPerThread) {
  drill_.board.give(
      {.action = Action::kFail, .site = "test.fault", .thread = "b", .first_hit = 2, .code = 7});
  drill_.reap(run([] {
    for (const char* label : {"a", "b", "c"}) {
      std::thread([label] {
        kvdrill_thread(label);
        note_answer(1, kvdrill_fault(&fault, 0));
        note_answer(2, kvdrill_fault(&fault, 0));
      }).join();
    }
  }));
  EXPECT_EQ(noted(), (Answers{0, 0, 0, 7, 0, 0}));
}

TEST_F(OrdersTest, AFaultCannotBeSkipped) {
  const auto skip = drill_.board.give({.action = Action::kSkip, .site = "test.fault", .times = 0});
  drill_.reap(run(five_faults));
  EXPECT_EQ(noted(), (Answers{0, 0, 0, 0, 0}));
  EXPECT_EQ(drill_.board.state(skip).acted, 0u) << "it cannot act there, so it did not";
}

TEST_F(OrdersTest, AFaultPretendsAndTakesTurnsWithFailures) {
  drill_.board.give({.action = Action::kPretend, .site = "test.fault", .first_hit = 2});
  drill_.board.give(
      {.action = Action::kFail, .site = "test.fault", .first_hit = 2, .times = 2, .code = 7});
  drill_.board.give({.action = Action::kPretend, .site = "test.step"});
  drill_.reap(run([] {
    five_faults();
    note_answer(6, kvdrill_step(&step, 0));
  }));
  EXPECT_EQ(noted(), (Answers{0, KVDRILL_PRETEND, 7, 0, 0, 1}));
  EXPECT_EQ(drill_.wait_for(EventKind::kActed).text, "pretend");
}
TEST_F(OrdersTest, AStepIsSkippedAndCannotFail) {
  const auto failing = drill_.board.give({.action = Action::kFail, .site = "test.step", .code = 7});
  drill_.board.give({.action = Action::kSkip, .site = "test.step"});
  drill_.reap(run([] {
    note_answer(1, kvdrill_step(&step, 0));
    note_answer(2, kvdrill_step(&step, 0));
  }));
  EXPECT_EQ(noted(), (Answers{0, 1}));
  EXPECT_EQ(drill_.board.state(failing).acted, 0u) << "it cannot act there, so it did not";
}

TEST_F(OrdersTest, TwoFailuresTakeTurns) {
  drill_.board.give({.action = Action::kFail, .site = "test.fault", .code = 7});
  drill_.board.give({.action = Action::kFail, .site = "test.fault", .code = 8});
  drill_.reap(run(five_faults));
  EXPECT_EQ(noted(), (Answers{7, 8, 0, 0, 0}));
}

TEST_F(OrdersTest, TheEndOfAFaultIsAMomentOfItsOwn) {
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "test.fault.done"});
  const pid_t pid = run([] {
    kvdrill_fault(&fault, 5);
    kvdrill_done(&fault, 5, -1);
    note_answer(0, 1);
  });
  const Event acted = drill_.wait_for(EventKind::kActed);
  EXPECT_GT(acted.sequence, drill_.wait_for(EventKind::kDone).sequence);
  EXPECT_TRUE(noted().empty());
  drill_.board.release(hold);
  drill_.reap(pid);
  EXPECT_EQ(noted(), (Answers{1}));
}

TEST_F(OrdersTest, WhateverActsErrnoIsLeftAlone) {
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "test.point"});
  drill_.board.give({.action = Action::kRun, .site = "test.point", .command = "spoil"});
  const pid_t pid = run([] {
    errno = ECONNRESET;
    kvdrill_point(&point, 0);
    const int now = errno;
    note_answer(0, now);
  });
  drill_.wait_for(EventKind::kActed);
  drill_.board.release(hold);
  drill_.reap(pid);
  EXPECT_EQ(noted(), (Answers{ECONNRESET}));
  EXPECT_EQ(drill_.wait_for(EventKind::kReturn, "spoil").text, "ok");
}

TEST_F(OrdersTest, WithdrawnItActsNoMoreButHoldsWhomItHolds) {
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "test.point", .times = 0});
  // The second thread goes on only when the first is held and the order withdrawn.
  const auto gate = drill_.board.give({.action = Action::kHold, .site = "test.fault"});
  const pid_t pid = run([] {
    std::thread held([] { kvdrill_point(&point, 1); });
    kvdrill_fault(&fault, 0);
    kvdrill_point(&point, 2);
    note_answer(0, 1);
    held.join();
    note_answer(0, 2);
  });
  drill_.wait_for(EventKind::kActed, "test.point");
  drill_.board.withdraw(hold);
  EXPECT_EQ(drill_.board.state(hold).acted, 1u);
  drill_.board.release(gate);
  drill_.wait_for([](const Event& event) { return event.value == 1 && event.name == "test.note"; });
  EXPECT_EQ(drill_.board.state(hold).holding, 1u);
  drill_.board.release(hold);
  drill_.reap(pid);
  EXPECT_EQ(noted(), (Answers{1, 2}));
  EXPECT_EQ(drill_.board.state(hold).acted, 1u);
}

TEST_F(OrdersTest, ReleaseAllLetsEverythingGo) {
  drill_.board.give({.action = Action::kHold, .site = "test.point", .times = 0});
  drill_.board.give({.action = Action::kFreeze, .site = "test.step", .times = 0});
  const pid_t one = run([] { kvdrill_point(&point, 0); });
  const pid_t two = run([] { kvdrill_step(&step, 0); }, "two");
  drill_.wait_for(EventKind::kActed, "test.point");
  drill_.wait_for(EventKind::kActed, "test.step");
  drill_.board.release_all();
  EXPECT_EQ(drill_.exit_code(one), 0);
  EXPECT_EQ(drill_.exit_code(two), 0);
  drill_.reap(run([] { kvdrill_point(&point, 0); }));
}

TEST_F(OrdersTest, ACrashOrderEndsTheProcessByThatSignal) {
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM}) {
    drill_.board.give({.action = Action::kCrash, .site = "test.point", .code = signal});
    const pid_t pid = run([] {
      ::signal(SIGTERM, SIG_IGN);
      kvdrill_point(&point, 0);
    });
    EXPECT_EQ(drill_.exit_code(pid), -signal);
  }
  EXPECT_EQ(drill_.all(EventKind::kActed).size(), 3u);
  EXPECT_TRUE(drill_.all(EventKind::kCrash).empty()) << "the default disposition, no last words";
}

TEST_F(OrdersTest, AFrozenProcessStandsStillUntilItIsReleased) {
  const auto freeze = drill_.board.give({.action = Action::kFreeze, .site = "test.point"});
  const pid_t pid = run([] {
    kvdrill_point(&point, 0);
    note_answer(0, 1);
  });
  drill_.wait_for(EventKind::kActed);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  EXPECT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(drill_.board.state(freeze).holding, 1u);
  EXPECT_TRUE(noted().empty());
  ::kill(pid, SIGCONT);
  EXPECT_EQ(drill_.exit_code(pid), 0);
  EXPECT_EQ(noted(), (Answers{1}));
}

TEST_F(OrdersTest, AReleaseOfAFreezeIsNotLostWheneverItComes) {
  for (int round = 0; round < 100; ++round) {
    const auto freeze = drill_.board.give({.action = Action::kFreeze, .site = "test.point"});
    const std::uint64_t from = drill_.board.next_sequence();
    const pid_t pid = run([] { kvdrill_point(&point, 0); });
    // Seen the moment, the thread may stand anywhere between it and the stop.
    drill_.wait_for(round % 2 == 0 ? EventKind::kPoint : EventKind::kActed, "test.point", from);
    drill_.board.release(freeze);
    ASSERT_EQ(drill_.exit_code(pid), 0);
    EXPECT_EQ(drill_.board.state(freeze).acted, 1u);
    EXPECT_EQ(drill_.board.state(freeze).holding, 0u);
  }
}

// The kernel tells nobody but its parent that a process has stopped; this one's is not us. It says
// that it freezes, and stops only when the release is on its way already.
TEST_F(OrdersTest, AReleaseOfAFreezeWaitsForTheStopOfAGrandchildToo) {
  const View view = second_view(drill_.board);
  const auto freeze = drill_.board.give({.action = Action::kFreeze, .site = "test.point"});
  for (int round = 0; round < 5; ++round) {
    const std::uint64_t from = drill_.board.next_sequence();
    OrderSlot& order = view.orders[freeze - 1];
    order.released.store(0);
    const pid_t pid = run([&order] {
      const pid_t child = ::fork();
      if (child == 0) {
        kvdrill_note(&note, 0, 0, nullptr);
        while (order.released.load() == 0) futex_wait(order.released, 0);
        ::raise(SIGSTOP);
        ::_exit(0);
      }
      while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    });
    const Event there = drill_.wait_for(EventKind::kNote, "test.note", from);
    const pid_t tid = drill_.board.processes().at(there.process).threads.at(there.thread).tid;
    for (std::uint32_t i = 0; i < view.thread_count(); ++i) {
      if (view.threads[i].tid == tid) view.threads[i].held_by.store(freeze | kStopping);
    }
    drill_.board.release(freeze);
    ASSERT_EQ(drill_.exit_code(pid), 0);
  }
}

// The moment between "this thread freezes" and "nothing keeps it from it", played by hand.
TEST_F(OrdersTest, AReleaseTakesBackAThreadThatHasNotStoppedYet) {
  const View view = second_view(drill_.board);
  ThreadSlot* slot = claim_thread(view, 0, ::getpid(), "about to freeze");
  const auto freeze = drill_.board.give({.action = Action::kFreeze, .site = "test.point"});
  slot->held_by.store(freeze);
  EXPECT_EQ(drill_.board.state(freeze).holding, 1u);
  drill_.board.release(freeze);
  EXPECT_EQ(slot->held_by.load(), 0u);
}

TEST_F(OrdersTest, ACommandRunsOnTheThreadThatReachedThePoint) {
  drill_.board.give({.action = Action::kRun,
                     .site = "test.point",
                     .times = 0,
                     .command = "nested",
                     .arguments = R"({"a":1})",
                     .call_name = "inner",
                     .call_id = 42});
  drill_.reap(run([] {
    kvdrill_thread("here");
    kvdrill_point(&point, 1);
    note_answer(0, 1);
  }));
  const Event call = drill_.wait_for(EventKind::kCall, "nested");
  const Event answer = drill_.wait_for(EventKind::kReturn, "nested");
  EXPECT_EQ(call.text, "inner");
  EXPECT_EQ(call.value, 42);
  EXPECT_EQ(answer.value, 42);
  EXPECT_EQ(answer.text, R"({"a":1})");
  EXPECT_EQ(answer.key, 0);
  EXPECT_EQ(drill_.board.processes().at(1).threads.at(call.thread).label, "here");
  EXPECT_EQ(drill_.all(EventKind::kCall).size(), 1u) << "not within itself";
  EXPECT_LT(answer.sequence, drill_.wait_for(EventKind::kNote).sequence);
}

TEST_F(OrdersTest, AHoldComesBeforeALaterOrderForTheSameHit) {
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "test.fault"});
  drill_.board.give({.action = Action::kFail, .site = "test.fault", .code = 7});
  const pid_t pid = run(five_faults);
  drill_.wait_for(EventKind::kActed);
  drill_.board.release(hold);
  drill_.reap(pid);
  EXPECT_EQ(noted(), (Answers{7, 0, 0, 0, 0}));
}

// Whoever has seen the moment may end the order at once, and still finds that it acted.
TEST_F(OrdersTest, WhoSeesTheMomentFindsTheOrderCounted) {
  for (int round = 0; round < 50; ++round) {
    const auto hold = drill_.board.give({.action = Action::kHold, .site = "test.point"});
    const std::uint64_t from = drill_.board.next_sequence();
    const pid_t pid = run([] { kvdrill_point(&point, 0); });
    drill_.wait_for(EventKind::kPoint, "test.point", from);
    EXPECT_EQ(drill_.board.state(hold).acted, 1u);
    drill_.board.release(hold);
    ASSERT_EQ(drill_.exit_code(pid), 0);
    EXPECT_EQ(drill_.wait_for(EventKind::kReleased, "test.point", from).value, hold);
  }
}

TEST_F(OrdersTest, RacingThreadsShareAnOrderExactly) {
  constexpr int kThreads = 4, kRounds = 500, kTimes = 333;
  const auto order = drill_.board.give(
      {.action = Action::kFail, .site = "test.fault", .times = kTimes, .code = 1});
  drill_.reap(run([] {
    std::atomic<std::int64_t> failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&failed] {
        for (int n = 0; n < kRounds; ++n) failed += kvdrill_fault(&fault, n);
      });
    }
    for (std::thread& thread : threads) thread.join();
    note_answer(0, failed);
  }));
  EXPECT_EQ(noted(), (Answers{kTimes}));
  EXPECT_EQ(drill_.board.state(order).acted, static_cast<std::uint64_t>(kTimes));
  EXPECT_EQ(drill_.all(EventKind::kActed).size(), static_cast<std::size_t>(kTimes));
}

TEST_F(OrdersTest, AnUnknownOrderIsNobody) {
  drill_.board.release(0);
  drill_.board.withdraw(77);
  EXPECT_EQ(drill_.board.state(77).acted, 0u);
}

}  // namespace
}  // namespace kv::drill
