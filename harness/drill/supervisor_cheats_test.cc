// Engines that break the contract in ways that are easily missed, in whole runs. The engine is this
// program itself (test_main.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "harness/drill/supervisor_test_support.h"
#include "harness/process/output.h"

namespace kv::drill {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CheatsTest : public JudgingTest {
 public:
  // The reason of the only check that fails.
  std::string why(const std::string& only) {
    const DrillResult result = run();
    EXPECT_EQ(failed(result), std::set<std::string>{only}) << reasons(result);
    return check(result, only).why;
  }
};

// ---- what was there before is known by what it is

TEST_F(CheatsTest, AThreadThatTheEndOfAnotherWouldHide) {
  cheating("swaps").command("swap_threads").command("shutdown", "done").exit();
  EXPECT_THAT(why("nothing_left"), HasSubstr("worker kept 1 thread after its shutdown: "));
}

TEST_F(CheatsTest, AFileInTheSlotOfAnotherOfTheSameName) {
  cheating("swaps").command("swap_file").command("shutdown", "done").exit();
  EXPECT_THAT(why("nothing_left"), AllOf(HasSubstr("worker kept open after its shutdown: "),
                                         HasSubstr("/nameless"), Not(HasSubstr("thread"))));
}

TEST_F(CheatsTest, AnAnonymousFileInTheSlotOfAnotherOfItsKind) {
  cheating("swaps").command("swap_event").command("shutdown", "done").exit();
  EXPECT_THAT(why("nothing_left"), HasSubstr("anon_inode:[eventfd]"));
}

TEST_F(CheatsTest, WhatStaysAsItWasIsNoLeftover) {
  cheating("swaps").command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
}

TEST_F(CheatsTest, WhatWasMadeRightBehindReadyIsNotPartOfTheBeginning) {
  cheating("leaks behind ready").command("shutdown", "done").exit();
  EXPECT_THAT(why("nothing_left"),
              AllOf(HasSubstr("/dev/zero"), HasSubstr("1 thread after its shutdown")));
}

TEST_F(CheatsTest, AFileInThePlaceOfOneThatTheDrillHadPlaced) {
  step(R"({place = "{run}/s/placed", contents = "text"})");
  command("take_placed").command("shutdown", "done").exit();
  EXPECT_THAT(why("nothing_left"), HasSubstr("left below the run: s/placed"));
}

// ---- places

TEST_F(CheatsTest, WhatLiesInTheDefaultPlacesByTheNamesOfThisRun) {
  // A name that no other test and no other run of this one has.
  drill_.processes[0].name = "cheat" + std::to_string(::getpid());
  drill_.steps.clear();
  const std::string& name = drill_.processes[0].name;
  step("{start = '" + name + "'}");
  step("{call = 'leave_in_default_places', in = '" + name + "', as = 'leave'}");
  step("{returns = 'leave', value = 'ok'}").step("{exit = '" + name + "'}");
  const std::string folder = "/tmp/kvcached-tp-" + name + "-0123abcd";
  const std::string left = why("nothing_left");
  EXPECT_THAT(left,
              HasSubstr("left below the run: s/own; left in the default places: /dev/shm/kvd"));
  EXPECT_THAT(left, AllOf(HasSubstr("_x, "), HasSubstr(folder + "/")));
  const auto segment = left.find("/dev/shm/kvd");
  ASSERT_NE(segment, std::string::npos);
  std::filesystem::remove(left.substr(segment, left.find("_x", segment) + 2 - segment));
  // What was there before the run is not its own.
  drill_.steps.clear();
  step("{start = '" + name + "'}").step("{signal = 'KILL', to = '" + name + "'}");
  step("{ended = '" + name + "', signal = 'KILL'}");
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
  std::filesystem::remove(folder);
}

TEST_F(CheatsTest, AFileAmongTheOutputs) {
  command("hide_in_out").command("shutdown", "done").exit();
  EXPECT_THAT(why("nothing_left"), HasSubstr("left below the run: out/hidden/"));
}

TEST_F(CheatsTest, ARunFolderWithoutItsParts) {
  command("empty_folder").exit();
  EXPECT_THAT(why("run folder"),
              EndsWith("removed or replaced card/, m/, out/, plan.txt, s/, supervisor"));
}

TEST_F(CheatsTest, ARunFolderThatIsGoneFailsTheNextStart) {
  command("remove_folder").exit().start();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"run folder", "start worker"}))
      << reasons(result);
  EXPECT_EQ(result.verdict, Verdict::kFail) << reasons(result);
  EXPECT_THAT(check(result, "start worker").why, HasSubstr("a process of the drill removed"));
}

TEST_F(CheatsTest, ALedgerThatIsGoneAlthoughTheCardWasUsed) {
  command("hold_card").command("lose_ledger").command("shutdown", "done").exit();
  EXPECT_THAT(why("nothing_left"), HasSubstr("the card was used, and its ledger was removed"));
}

// ---- outputs

TEST_F(CheatsTest, AFloodOfOutputIsCutInTheMiddle) {
  options_.keep = true;
  command("flood").command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
  EXPECT_THAT(result.note,
              AllOf(StartsWith("worker's standard output was 67108886 bytes, of which "),
                    EndsWith(" in the middle are not kept")));
  const std::string text = contents(result.folder + "/out/worker.stdout");
  EXPECT_LT(text.size(), Output::kHead + Output::kTail + 200);
  EXPECT_THAT(text.substr(0, 20), StartsWith("the beginning\n"));
  EXPECT_THAT(text.substr(text.size() - 20), EndsWith("\nthe end"));
  EXPECT_THAT(contents(result.folder + "/trace.txt"), HasSubstr(result.note));
}

// ---- words

TEST_F(CheatsTest, OneThatSpinsIsRunning) {
  cheating("spins");
  drill_.steps.back().deadline_ns = 300'000'000;
  EXPECT_THAT(why("no_hang"),
              AllOf(HasSubstr("worker attached, but never said that it is ready"),
                    HasSubstr("not within 0.3 s: worker/main is running"), Not(HasSubstr("idle"))));
}

TEST_F(CheatsTest, OneThatStoppedItselfIsStoppedByASignal) {
  cheating("stops itself");
  EXPECT_THAT(why("no_hang"),
              AllOf(HasSubstr("nobody can move any more: worker is stopped by SIGTSTP"),
                    Not(HasSubstr("idle"))));
}

TEST_F(CheatsTest, OneThatNeverSaysReadyIsSaidSo) {
  cheating("never ready");
  EXPECT_THAT(why("no_hang"), HasSubstr("worker attached, but never said that it is ready "
                                        "(kvdrill_ready()): nobody can move any more"));
}

TEST_F(CheatsTest, OneThatNeverAttachesIsSaidSo) {
  cheating("never attaches");
  EXPECT_THAT(why("no_hang"), HasSubstr("worker never attached (kvdrill_attach())"));
}

TEST_F(CheatsTest, OneThatReplacedItselfByExecIsSaidSoAndLeftAlive) {
  call("become_another").exit();
  const std::string words = why("no_hang");
  EXPECT_THAT(words, HasSubstr("worker has replaced itself by exec and is "));
  EXPECT_THAT(words, Not(HasSubstr("signal 40")));
}

// ---- the clock, and what --describe says

TEST_F(CheatsTest, AReturnWithoutTheDrillsClockIsExplained) {
  call("look").step(R"({id = "waits", pending = "stop"})");
  command("shutdown", "done").exit();
  EXPECT_EQ(why("waits"),
            "stop has returned 'ok'; worker never took the drill's clock (kvdrill_on_clock()): its "
            "time limits run in real time");
}

TEST_F(CheatsTest, AClockThatNobodyHasTakenCannotBeMoved) {
  step(R"({advance = "1s"})");
  EXPECT_THAT(why("advance 1s"), HasSubstr("worker never took the drill's clock"));
}

TEST_F(CheatsTest, AClockThatWasTakenBeforeAttachingIsMoved) {
  cheating("clock early");
  step(R"({advance = "1s"}, {logged = "moved"})");
  command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
}

TEST_F(CheatsTest, APointThatDescribeDoesNotListIsSaid) {
  command("reach_secret").command("shutdown", "done").exit();
  EXPECT_THAT(why("contract"), HasSubstr("not listed by --describe: engine.secret in worker/"));
}

}  // namespace
}  // namespace kv::drill
