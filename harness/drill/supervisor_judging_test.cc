// What the default checks find in whole runs, on an engine that does wrong when it is told to. The
// engine is this program itself (test_main.cc).
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "harness/board/kvdrill.h"
#include "harness/drill/supervisor_test_support.h"
#include "harness/process/card_ledger.h"

namespace kv::drill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(JudgingTest, AShutdownThatIsDoneOwesTheCardHoweverTheProcessEnds) {
  command("hold_card").command("shutdown", "done").command("look").kill();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"nothing_left"}) << reasons(result);
  EXPECT_THAT(check(result, "nothing_left").why, HasSubstr("worker ended holding 1 handle"));
}

TEST_F(JudgingTest, AShutdownThatIsDoneOwesDescriptorsHoweverTheProcessEnds) {
  command("open").command("shutdown", "done").command("look").kill();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"nothing_left"}) << reasons(result);
  EXPECT_THAT(check(result, "nothing_left").why, HasSubstr("/dev/zero"));
}

TEST_F(JudgingTest, AShutdownByAnOrderOwesAsOneByACall) {
  step(R"({run = "shutdown", at = "engine.work"})");
  command("hold_card").command("open").command("work");
  step(R"({exit = "worker", how = "_exit"})");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"nothing_left"}) << reasons(result);
  EXPECT_THAT(check(result, "nothing_left").why,
              AllOf(HasSubstr("worker ended holding 1 handle"), HasSubstr("/dev/zero")));
}

TEST_F(JudgingTest, WhatWasBroughtUpAgainAfterAShutdownIsNotOwedByIt) {
  command("hold_card").command("open").command("shutdown", "done").command("start_again").kill();
  EXPECT_EQ(run().verdict, Verdict::kPass);
}

TEST_F(JudgingTest, AKilledProcessIsExcusedForThePathsThatItAnnounced) {
  kill();
  EXPECT_EQ(run().verdict, Verdict::kPass);
}

TEST_F(JudgingTest, APathThatALaterProcessTookOverIsNotExcused) {
  kill().start();
  exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"nothing_left"}) << reasons(result);
  EXPECT_THAT(check(result, "nothing_left").why, HasSubstr("s/own"));
}

TEST_F(JudgingTest, AFileInTheRunFolderItselfIsLeft) {
  command("file").command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"nothing_left"}) << reasons(result);
  EXPECT_THAT(check(result, "nothing_left").why,
              AllOf(HasSubstr("below the run: scratch"), Not(HasSubstr("plan.txt"))));
}

TEST_F(JudgingTest, WhatTheDrillItselfPlacedIsNotLeft) {
  step(R"({place = "{run}/deep/down/file", contents = "text"})");
  command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
}

TEST_F(JudgingTest, ACrashOfAChildFails) {
  command("crash_in_child").command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"no_crash"}) << reasons(result);
  EXPECT_THAT(check(result, "no_crash").why,
              AllOf(HasSubstr("worker.fork-1 (pid "), HasSubstr("a child of worker"),
                    HasSubstr("SIGABRT")));
}

TEST_F(JudgingTest, AFolderThatAProcessTookAwayIsSaidAndNotNamed) {
  command("remove_folder").exit();
  const DrillResult result = run();
  EXPECT_THAT(check(result, "run folder").why, HasSubstr("was removed by a process"));
  EXPECT_EQ(result.folder, "");
}

TEST_F(JudgingTest, ANamedEndIsACheckOfItsOwn) {
  command("shutdown", "done");
  step(R"({exit = "worker", wait = false}, {id = "code 3", ended = "worker", code = 3})");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"code 3", "no_crash"})) << reasons(result);
  EXPECT_EQ(check(result, "code 3").why, "worker ended by exit code 0, expected exit code 3");
}

TEST_F(JudgingTest, AnotherDriverIsSaidAndACardStepSkipsTheDrillWithAReason) {
  options_.fake_card = false;
  step(R"({id = "holds nothing", card = "worker", handles = 0})");
  command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kSkip) << reasons(result);
  EXPECT_THAT(check(result, "holds nothing").why, HasSubstr("keeps no ledger"));
  EXPECT_EQ(check(result, "nothing_left").verdict, Verdict::kPass);
  EXPECT_THAT(check(result, "nothing_left").why, HasSubstr("card not looked at"));
  EXPECT_EQ(result.folder, "");
}

TEST_F(JudgingTest, OneOfSeveralCallsMustWin) {
  step(R"({call = "look", in = "worker"}, {call = "work", in = "worker"},
          {call = "shutdown", in = "worker"})");
  step(R"({id = "two win", one_of = ["look", "work"], value = "ok"},
          {id = "nobody wins", one_of = ["look", "work"], value = "done"},
          {id = "one wins", one_of = ["look", "shutdown"], value = "done", others = "ok"},
          {id = "the other is wrong", one_of = ["look", "shutdown"], value = "done", others = "no"})");
  exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"two win", "nobody wins", "the other is wrong"}))
      << reasons(result);
  EXPECT_EQ(check(result, "the other is wrong").why,
            "look returned 'ok', shutdown returned 'done'; expected 'done' of exactly one and 'no' "
            "of the others");
}

TEST_F(JudgingTest, AWarningIsExpectedOfTheProcessThatTheStepNames) {
  ProcessSpec other = drill_.processes[0];
  other.name = "other";
  drill_.processes.push_back(other);
  step(R"({start = "other"})");
  command("warn").command("shutdown", "done");
  step(R"({call = "warn", in = "other", as = "too"}, {logged = "made up", in = "worker"},
          {returns = "too", value = "ok"})");
  exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"clean_logs"})) << reasons(result);
  EXPECT_THAT(check(result, "clean_logs").why, HasSubstr("other logged a warning"));
}

TEST_F(JudgingTest, AStartThatFailsIsToldWhateverLaterStepsSay) {
  options_.engine = "/bin/false";
  step(R"({logged = "x", in = "worker"}, {id = "the end", ended = "worker", code = 1})");
  const DrillResult result = run();
  EXPECT_EQ(check(result, "start worker").verdict, Verdict::kFail) << reasons(result);
  EXPECT_EQ(check(result, "the end").verdict, Verdict::kNotJudged);
}

// ---- what is asserted about what might still come

TEST_F(JudgingTest, ACountWaitsForWhatMightStillCome) {
  command("listen").step(R"({client = "c", connect = "worker"})");
  std::set<std::string> all = {"nothing_left"};  // of an engine that was not shut down
  for (int i = 0; i < 100; ++i) {
    const std::string name = fmt::format("no more than {}", i);
    all.insert(name);
    orders("d").step(fmt::format("{{id = '{}', count = 'listener.dispatch', {} = {}}}", name,
                                 i % 2 == 0 ? "is" : "at_most", i));
  }
  EXPECT_EQ(failed(run()), all);
}

TEST_F(JudgingTest, AnOrderAndACountFromBelowWaitForWhatMightStillCome) {
  command("listen").step(R"({client = "c", connect = "worker"})");
  for (int all = 2; all < 30; all += 3) {
    orders("dd").step(
        fmt::format("{{id = 'in order {}', order = ['listener.dispatch#1', "
                    "'listener.dispatch#{}']}}",
                    all, all));
    orders("d").step(fmt::format("{{id = 'came {}', count = 'listener.dispatch', at_least = {}}}",
                                 all, all + 1));
  }
  step(R"({id = "one too many", count = "listener.dispatch", at_least = 31},
          {id = "never", order = ["listener.dispatch#1", "engine.work"]})");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"one too many", "never", "nothing_left"}))
      << reasons(result);
  EXPECT_EQ(check(result, "never").why, "engine.work@worker never happened");
}

TEST_F(JudgingTest, AnAbsentFileAndTheCardWaitForWhatMightStillCome) {
  command("listen").step(R"({client = "c", connect = "worker"})");
  std::set<std::string> absent = {"nothing_left"};
  for (int i = 1; i <= 20; ++i) {
    if (i % 2 == 0) {
      orders("c").step(fmt::format("{{id = 'card {}', card = 'worker', handles = {}}}", i, i));
    } else {
      const std::string name = fmt::format("absent {}", i);
      absent.insert(name);
      orders("f").step(
          fmt::format("{{id = '{}', file = '{{run}}/late{}', is = 'absent'}}", name, i));
    }
  }
  const DrillResult result = run();
  EXPECT_EQ(failed(result), absent) << reasons(result);
}

TEST_F(JudgingTest, OnTheRealClockALimitThatRanOutIsSaidAndBlamesNobody) {
  drill_.manual_clock = false;
  step(R"({call = "wait_in_vain", as = "vain"}, {id = "still waits", pending = "vain"},
          {id = "never comes to this", returns = "vain", value = "done"})");
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kVoid) << reasons(result);
  EXPECT_EQ(check(result, "still waits").verdict, Verdict::kVoid);
  EXPECT_THAT(check(result, "still waits").why,
              AllOf(HasSubstr("a limit of the engine's own ran out meanwhile: worker/vain"),
                    HasSubstr("with a time limit")));
}

TEST_F(JudgingTest, OnTheRealClockALimitThatRunsIsSaidAtTheDeadline) {
  drill_.manual_clock = false;
  step(R"({call = "wait_in_vain", as = "vain"},
          {id = "still waits", pending = "vain", deadline = "100ms"},
          {returns = "vain", value = "gave up"})");
  exit();
  const DrillResult result = run();
  EXPECT_THAT(check(result, "still waits").why,
              HasSubstr("could not be told within 0.1 s: a limit of the engine's own runs: "));
}

TEST_F(JudgingTest, AnExitThatIsNotWaitedForLetsTheDrillGoOn) {
  hold("engine.exit");
  command("shutdown", "done");
  step(R"({id = "told", exit = "worker", how = "exit", code = 7, wait = false})");
  wait("engine.exit").step(R"({release = "engine.exit"}, {ended = "worker"})");
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
  EXPECT_EQ(result.processes.at(0).exit, 7);
}

TEST_F(JudgingTest, WhatCannotComeAnyMoreAfterACrashIsToldByTheCrash) {
  hold("engine.work").call("abort").step(R"({ended = "worker", signal = "ABRT"})");
  step(R"({id = "reached", wait = "engine.work"})");
  const DrillResult result = run();
  EXPECT_THAT(check(result, "hold engine.work in worker").why,
              testing::StartsWith("worker died by SIGABRT before: engine.work@worker never fired"));
  EXPECT_THAT(check(result, "reached").why, testing::StartsWith("worker died by SIGABRT before "));
}

}  // namespace
}  // namespace kv::drill
