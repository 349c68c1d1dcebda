// Whole runs of hand-made drills on the example engine of the contract.
#include "harness/drill/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/drill/supervisor_test_support.h"

namespace kv::drill {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(SupervisorTest, ADrillWhoseAssertionsHoldPassesAndLeavesNothing) {
  start().send().wait("echo.received");
  step(R"({id = "answered", client = "c", expect = "eof"})");
  call("shutdown").step(R"({id = "stopped", returns = "stop", value = "done"})").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
  EXPECT_EQ(check(result, "answered").verdict, Verdict::kPass);
  EXPECT_EQ(check(result, "stopped").verdict, Verdict::kPass);
  ASSERT_EQ(result.processes.size(), 1u);
  EXPECT_EQ(result.processes[0].exit, 0);
  EXPECT_EQ(result.folder, "");
  EXPECT_THAT(run_folders(), IsEmpty());
}

TEST_F(SupervisorTest, AProcessThatNoStepEndsIsToldToReturn) {
  start();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"nothing_left"}) << reasons(result);
  EXPECT_THAT(check(result, "nothing_left").why, HasSubstr("s/worker.sock"));
  EXPECT_EQ(result.processes.at(0).exit, 0);
}

TEST_F(SupervisorTest, AHeldHandlerKeepsTheStopPendingUntilItIsReleased) {
  start().hold("echo.received").send().wait("echo.received").call("shutdown");
  step(R"({id = "waits for the handler", pending = "stop"})");
  step(R"({release = "echo.received"})");
  step(R"({id = "stopped", returns = "stop", value = "done"})").exit();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
}

TEST_F(SupervisorTest, ACallThatReturnsIsNotPending) {
  start().call("shutdown").step(R"({id = "pending", pending = "stop"})").exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"pending"}) << reasons(result);
  EXPECT_THAT(check(result, "pending").why, HasSubstr("has returned 'done'"));
}

TEST_F(SupervisorTest, ANamedStepThatIsStuckFailsAloneAndTheDrillGoesOn) {
  start().hold("echo.received").send().wait("echo.received").call("shutdown");
  step(R"({id = "returned too early", returns = "stop", value = "done"})");
  step(R"({release = "echo.received"})");
  step(R"({id = "stopped", returns = "stop", value = "done"})").exit();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"returned too early"}) << reasons(result);
  EXPECT_THAT(check(result, "returned too early").why,
              AllOf(HasSubstr("nobody can move any more"),
                    HasSubstr("worker/echo is held at echo.received[5]"),
                    HasSubstr("worker/stop waits in futex after call shutdown")));
  const std::string stacks = contents(result.folder + "/stacks.txt");
  EXPECT_THAT(stacks, AllOf(HasSubstr("returns stop = done"), HasSubstr("worker/echo:"),
                            HasSubstr("example_engine+0x")));
  EXPECT_THAT(contents(result.folder + "/trace.txt"),
              AllOf(HasSubstr("echo.received[5]#1"), HasSubstr("drill")));
  EXPECT_THAT(contents(result.folder + "/timeline.html"), HasSubstr("returned too early"));
  EXPECT_EQ(contents(result.folder + "/plan.txt").substr(0, options_.repeat.size()),
            options_.repeat);
  EXPECT_TRUE(result_from_json(contents(result.folder + "/verdict.json")));
}

TEST_F(SupervisorTest, APointThatIsNeverReachedFailsAtOnceAndCutsTheDrillShort) {
  start().wait("echo.received").step(R"({file = "/nowhere", is = "present"})");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"no_hang"}) << reasons(result);
  EXPECT_THAT(check(result, "no_hang").why,
              AllOf(HasSubstr("wait echo.received"), HasSubstr("nobody can move")));
  EXPECT_EQ(check(result, "no_hang").position.line, 3);
  EXPECT_EQ(result.processes.at(0).signal, SIGKILL);
}

TEST_F(SupervisorTest, AnInjectedFailureIsSeenByItsEnd) {
  start().step(R"({fail = "echo.send", code = 5})").send().wait("echo.send.done");
  step(R"({id = "one send", count = "echo.send.done", is = 1},
          {id = "order", order = ["echo.send.done", "echo.received"]})");
  shut_down();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"order"}) << reasons(result);
  EXPECT_THAT(check(result, "order").why, HasSubstr("echo.received@worker (event"));
}

TEST_F(SupervisorTest, ACrashThatTheDrillOrderedIsExpected) {
  start().step(R"({crash = "echo.received"})").send();
  step(R"({ended = "worker", signal = "SEGV"})");
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
  EXPECT_EQ(result.processes.at(0).signal, SIGSEGV);
  EXPECT_EQ(result.processes.at(0).core_signal, "SIGSEGV");
}

TEST_F(SupervisorTest, ACrashThatTheDrillDoesNotExpectIsReportedWithItsFunctions) {
  start().step(R"({signal = "ABRT", to = "worker"}, {ended = "worker", code = 0})");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"no_crash"}) << reasons(result);
  EXPECT_THAT(
      check(result, "no_crash").why,
      AllOf(HasSubstr("worker ended by SIGABRT, expected exit code 0, at\n  "), HasSubstr("main")));
  EXPECT_THAT(contents(result.folder + "/stacks.txt"), HasSubstr("crashed"));
}

TEST_F(SupervisorTest, AnEndOtherTheDrillSaysFailsNoCrashAlone) {
  start().step(R"({signal = "KILL", to = "worker"}, {ended = "worker", code = 0})");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"no_crash"}) << reasons(result);
  EXPECT_THAT(check(result, "no_crash").why,
              HasSubstr("worker ended by SIGKILL, expected exit code 0"));
}

TEST_F(SupervisorTest, AWorkerThatDiesEarlyIsReportedWithItsLastWords) {
  step(R"({place = "{run}/s/worker.sock", contents = "in the way"})").start().send();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"no_crash", "start worker"})) << reasons(result);
  EXPECT_THAT(check(result, "no_crash").why,
              AllOf(HasSubstr("exit code 1"), HasSubstr("before it was ready"),
                    HasSubstr("worker.sock: Address already in use")));
  EXPECT_EQ(result.processes.at(0).exit, 1);
  EXPECT_FALSE(result.processes.at(0).ready);
}

TEST_F(SupervisorTest, AStartThatMustFailIsJudgedByItsCodeAndItsWords) {
  step(R"({place = "{run}/s/worker.sock", contents = "in the way"})");
  step(R"({id = "as said", start = "worker", fails = true, code = 1, text = "already in use"},
          {id = "any code", start = "worker", fails = true},
          {id = "other code", start = "worker", fails = true, code = 2})");
  DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"other code", "no_crash"})) << reasons(result);
  EXPECT_EQ(check(result, "other code").why,
            "worker ended by exit code 1, expected its start to fail by exit code 2");
  EXPECT_TRUE(result.processes.at(0).ready);  // nobody waits for that

  drill_.steps.resize(1);
  step(R"({id = "other words", start = "worker", fails = true, code = 1, text = "no disk"})");
  result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"other words"}) << reasons(result);
  EXPECT_THAT(check(result, "other words").why,
              AllOf(HasSubstr("does not hold 'no disk': it ends '"), HasSubstr("in use")));

  drill_.steps.clear();
  step(R"({id = "refused", start = "worker", fails = true})");
  EXPECT_EQ(check(run(), "refused").why,
            "worker became ready, expected its start to fail by an exit code but 0");
}

TEST_F(SupervisorTest, StandardErrorIsEmptyOrHoldsAText) {
  step(R"({place = "{run}/s/worker.sock", contents = "in the way"})");
  step(R"({start = "worker", fails = true},
          {id = "holds", stderr = "worker", holds = "already in use"},
          {id = "holds not", stderr = "worker", holds = "no disk"},
          {id = "not empty", stderr = "worker", is = "empty"},
          {place = "{run}/s/worker.sock", socket = true, replace = true})");
  const DrillResult result = run();
  EXPECT_EQ(failed(result), (std::set<std::string>{"holds not", "not empty"})) << reasons(result);
  EXPECT_THAT(check(result, "holds not").why, HasSubstr("does not hold 'no disk': it ends '"));
  EXPECT_THAT(check(result, "not empty").why, HasSubstr("worker wrote to its standard error: "));

  drill_.steps.clear();
  start().step(R"({id = "empty", stderr = "worker", is = "empty"})").shut_down();
  EXPECT_EQ(run().verdict, Verdict::kPass);
}

// Where no file system can be mounted the drill is a skip, and says so.
TEST_F(SupervisorTest, ASmallRootIsFullWhenItsBytesAreUsed) {
  drill_.small_root = 4096;
  step(
      R"({place = "{run}/m/fits", contents = "x"}, {id = "full", place = "{run}/m/more", contents = "x"})");
  start().shut_down();
  const DrillResult result = run();
  if (result.verdict == Verdict::kSkip) {
    EXPECT_THAT(check(result, "small_root").why, HasSubstr("no file system of its own: "));
    GTEST_SKIP() << check(result, "small_root").why;
  }
  EXPECT_EQ(failed(result), std::set<std::string>{"full"}) << reasons(result);
  EXPECT_THAT(check(result, "full").why, HasSubstr("No space left on device"));
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string all((std::istreambuf_iterator<char>(mounts)), {});
  EXPECT_EQ(all.find(folder_), std::string::npos) << "what a run mounts is seen by nobody else";

  drill_.steps.clear();
  start().shut_down();
  EXPECT_EQ(run().verdict, Verdict::kPass);
  EXPECT_THAT(run_folders(), testing::SizeIs(1)) << "of the failed run";
}

TEST_F(SupervisorTest, AProgramThatCannotBeStartedIsAnErrorWithItsName) {
  options_.engine = folder_ + "/nothing";
  start();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kError);
  EXPECT_THAT(check(result, "start worker").why, HasSubstr(options_.engine));
}

TEST_F(SupervisorTest, AnOrderThatNeverActsMakesTheRunVoid) {
  start().hold("echo.received").shut_down();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kVoid) << reasons(result);
  EXPECT_THAT(check(result, "hold echo.received in worker").why, HasSubstr("never fired"));
}

TEST_F(SupervisorTest, WithoutTheUnlinkStepExactlyNothingLeftFails) {
  Address unlink_step;
  unlink_step.site = "echo.stop.unlink";
  options_.skip = {unlink_step};
  options_.expected_failures = {"nothing_left"};
  start().shut_down();
  const DrillResult result = run();
  EXPECT_EQ(failed(result), std::set<std::string>{"nothing_left"}) << reasons(result);
  EXPECT_EQ(result.folder, "") << "a proof that came out as it should keeps no folder";
}

TEST_F(SupervisorTest, AProofWhoseStepIsNeverReachedIsVoid) {
  Address unlink_step;
  unlink_step.site = "echo.stop.unlink";
  options_.skip = {unlink_step};
  start();
  EXPECT_EQ(check(run(), "skip echo.stop.unlink").verdict, Verdict::kVoid);
}

TEST_F(SupervisorTest, AWaivedCheckIsNotJudgedAndSaysWhy) {
  drill_.waived = {{"nothing_left", "the example keeps its socket"}};
  start();
  const DrillResult result = run();
  EXPECT_EQ(result.verdict, Verdict::kPass) << reasons(result);
  EXPECT_EQ(check(result, "nothing_left").verdict, Verdict::kNotJudged);
  EXPECT_THAT(check(result, "nothing_left").why, HasSubstr("the example keeps its socket"));
}

TEST_F(SupervisorTest, AFullRecorderIsAnError) {
  drill_.events = 64;
  start();
  step(R"({repeat = 100, steps = [{file = "{run}", is = "present"}]})");
  start();
  EXPECT_EQ(run().verdict, Verdict::kError);
}

// A drill that would last for ever: its engine moves (it sleeps with a limit), and is never ready.
// The engine says who it and its supervisor are through a FIFO.
class EndlessRunTest : public SupervisorTest {
 protected:
  EndlessRunTest() {
    fifo_ = folder_ + "/fifo";
    EXPECT_EQ(::mkfifo(fifo_.c_str(), 0600), 0);
    options_.engine = folder_ + "/engine";
    std::ofstream(options_.engine)
        << "#!/bin/sh\necho $$ $PPID > " << fifo_ << "\nexec sleep 1000\n";
    ::chmod(options_.engine.c_str(), 0700);
    start();
  }
  void read_pids() {
    std::ifstream fifo(fifo_);
    fifo >> engine_ >> supervisor_;
    ASSERT_GT(engine_, 0);
    ASSERT_GT(supervisor_, 0);
  }
  // Nothing of the run is there any more.
  void expect_gone() {
    EXPECT_NE(::kill(engine_, 0), 0);
    EXPECT_THAT(run_folders(), IsEmpty());
  }

  std::string fifo_;
  pid_t engine_ = 0, supervisor_ = 0;
};

TEST_F(EndlessRunTest, TheEndOfTheLifelineEndsEverything) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Supervisor supervisor = fork_drill(drill_, options_, ends[0]);
  read_pids();
  ::close(ends[1]);
  const DrillResult result = result_of(supervisor);
  EXPECT_EQ(result.verdict, Verdict::kError);
  EXPECT_THAT(check(result, "interrupted").why, HasSubstr("interrupted"));
  EXPECT_EQ(::waitpid(supervisor.pid, nullptr, 0), supervisor.pid);
  expect_gone();
  ::close(ends[0]);
}

TEST_F(EndlessRunTest, ASignalToTheSupervisorEndsEverything) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Supervisor supervisor = fork_drill(drill_, options_, -1);
    read_pids();
    EXPECT_EQ(supervisor_, supervisor.pid);
    ::kill(supervisor.pid, signal);
    EXPECT_EQ(result_of(supervisor).verdict, Verdict::kError);
    EXPECT_EQ(::waitpid(supervisor.pid, nullptr, 0), supervisor.pid);
    expect_gone();
  }
}

TEST_F(EndlessRunTest, AKilledRunnerLeavesNothing) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t runner = ::fork();
  if (runner == 0) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) ::_exit(1);
    fork_drill(drill_, options_, ends[0]);
    for (;;) ::pause();
  }
  read_pids();
  ::kill(runner, SIGKILL);
  EXPECT_EQ(::waitpid(runner, nullptr, 0), runner);
  int status = 0;
  EXPECT_EQ(::waitpid(supervisor_, &status, 0), supervisor_);
  // It has nobody to tell its result to, and that is all that is amiss with it.
  EXPECT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  expect_gone();
}

TEST_F(EndlessRunTest, TheSupervisorIsItsOwnProcessGroup) {
  const Supervisor supervisor = fork_drill(drill_, options_, -1);
  read_pids();
  EXPECT_EQ(::getpgid(supervisor.pid), supervisor.pid);
  EXPECT_NE(::getpgid(engine_), supervisor.pid);
  ::kill(supervisor.pid, SIGTERM);
  result_of(supervisor);
  ::waitpid(supervisor.pid, nullptr, 0);
}

}  // namespace
}  // namespace kv::drill
