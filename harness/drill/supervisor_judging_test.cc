// What the default checks find in whole runs, on an engine that does wrong when it is told to. The
// engine is this program itself (test_main.cc).
#include <fcntl.h>
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
#include "harness/process/card_ledger.h"
#include "harness/drill/supervisor_test_support.h"

namespace kv::drill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- the tests

class JudgingTest : public SupervisorTest {
 public:
  JudgingTest() {
    options_.engine = std::filesystem::read_symlink("/proc/self/exe");
    start();
  }
  JudgingTest& command(const std::string& name, const std::string& answer = "ok") {
    const std::string as = name + std::to_string(drill_.steps.size());
    step(CallStep{"worker", name, as, Value::Dict{}}, "call " + name);
    step(ReturnsStep{as, answer, ""}, "returns " + as);
    return *this;
  }
  JudgingTest& kill() {
    step(SignalStep{"worker", SIGKILL}, "kill worker");
    step(EndedStep{"worker", {}, SIGKILL}, "worker has ended");
    return *this;
  }
};

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
  GiveStep order;
  order.what = GiveStep::What::kRun;
  order.at.site = "engine.work";
  order.as = order.command = "shutdown";
  order.arguments = Value::Dict{};
  step(order, "run shutdown");
  command("hold_card").command("open").command("work");
  step(ExitStep{"worker", "_exit", 0}, "exit worker");
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
  step(ExitStep{"worker"}, "exit worker");
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
  step(PlaceStep{"{run}/deep/down/file", "text", false, false}, "place");
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
  step(ExitStep{"worker", "return", 0, false}, "exit worker");
  step(EndedStep{"worker", 3, std::nullopt}, "worker ended with code 3", "code 3");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"code 3", "no_crash"})) << reasons(result);
  EXPECT_EQ(check(result, "code 3").why, "worker ended by exit code 0, expected exit code 3");
}

TEST_F(JudgingTest, AnotherDriverIsSaidAndACardStepSkipsTheDrillWithAReason) {
  options_.fake_card = false;
  CardStep card;
  card.process = "worker";
  card.handles = 0;
  step(card, "card of worker", "holds nothing");
  command("shutdown", "done").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kSkip) << reasons(result);
  EXPECT_THAT(check(result, "holds nothing").why, HasSubstr("keeps no ledger"));
  EXPECT_EQ(check(result, "nothing_left").verdict, Verdict::kPass);
  EXPECT_THAT(check(result, "nothing_left").why, HasSubstr("card not looked at"));
  EXPECT_EQ(result.folder, "");
}

TEST_F(JudgingTest, AWarningIsExpectedOfTheProcessThatTheStepNames) {
  ProcessSpec other = drill_.processes[0];
  other.name = "other";
  drill_.processes.push_back(other);
  step(StartStep{"other"}, "start other");
  command("warn").command("shutdown", "done");
  step(CallStep{"other", "warn", "too", Value::Dict{}}, "call warn in other");
  step(LoggedStep{"worker", "made up"}, "logged");
  step(ReturnsStep{"too", "ok", ""}, "returns too").exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"clean_logs"})) << reasons(result);
  EXPECT_THAT(check(result, "clean_logs").why, HasSubstr("other logged a warning"));
}

TEST_F(JudgingTest, AnExitThatIsNotWaitedForLetsTheDrillGoOn) {
  GiveStep hold;
  hold.at.site = hold.as = "engine.exit";
  step(hold, "hold engine.exit");
  command("shutdown", "done");
  step(ExitStep{"worker", "exit", 7, false}, "exit worker, without waiting", "told");
  WaitStep wait;
  wait.at.site = "engine.exit";
  step(wait, "wait engine.exit").step(ReleaseStep{"engine.exit"}, "release engine.exit");
  step(EndedStep{"worker", {}, {}}, "worker ended");
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
  EXPECT_EQ(result.processes.at(0).exit, 7);
}

TEST_F(JudgingTest, WhatCannotComeAnyMoreAfterACrashIsToldByTheCrash) {
  GiveStep hold;
  hold.at.site = hold.as = "engine.work";
  step(hold, "hold engine.work");
  step(CallStep{"worker", "abort", "end", Value::Dict{}}, "call abort");
  step(EndedStep{"worker", {}, SIGABRT}, "worker has ended");
  WaitStep wait;
  wait.at.site = "engine.work";
  wait.at.process = "worker";
  step(wait, "wait engine.work", "reached");
  const DrillResult result = run();
  EXPECT_THAT(check(result, "hold engine.work").why,
              testing::StartsWith("worker died by SIGABRT before: engine.work never fired"));
  EXPECT_THAT(check(result, "reached").why, testing::StartsWith("worker died by SIGABRT before "));
}

}  // namespace
}  // namespace kv::drill
