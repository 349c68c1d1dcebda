// The program from the outside, when its surroundings or its engine misbehave: it says so, blames
// nobody else, and leaves nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "harness/cli/kvdrill_test_support.h"

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kWorker = std::string(KVDRILL_BUILD_DIR) + "/kvworker";

class KvdrillFaults : public Kvdrill {
 protected:
  // An engine that leaves a process behind which no signal to its group and no death of its parent
  // ends.
  std::string leaving_engine() {
    return script("leaves",
                  "[ \"$1\" = --describe ] || setsid sleep 1000 &\nexec " + kWorker + " \"$@\"\n");
  }
  static pid_t supervisor_of(const std::string& folder) {
    return static_cast<pid_t>(std::stol(slurp(folder + "/supervisor")));
  }
  // Returns when the script has opened the pipe.
  void await_opened(const std::string& pipe) { std::ifstream opened(pipe); }
  std::string pipe() {
    std::string path = root_ + "/pipe";
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  // A small file system for the runs, which only the program sees.
  bool mounted(const char* size) const {
    return ::unshare(CLONE_NEWNS) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("none", (root_ + "/runs").c_str(), "tmpfs", 0, size) == 0;
  }
  static std::string replaced(std::string text, const std::string& what, const std::string& by) {
    text.replace(text.find(what), what.size(), by);
    return text;
  }
};

TEST_F(KvdrillFaults, AKilledSupervisorLeavesNobodyAndItsFolderIsNamed) {
  const pid_t pid = start_lasting({"--engine", leaving_engine()});
  ASSERT_EQ(::kill(supervisor_of(lasting_), SIGKILL), 0);
  const auto outcome = end(pid);
  EXPECT_TRUE(nobody_is_left());
  EXPECT_EQ(code(outcome), 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("was killed by signal 9"));
  EXPECT_THAT(outcome.out, HasSubstr("folder: " + lasting_ + "\n"));
}

TEST_F(KvdrillFaults, TheOthersOfAKilledSupervisorGoOn) {
  const std::string quiet =
      replaced(kLasts, "{place = \"{run}/in_the_middle\", contents = \"\"},", "");
  const std::string short_one = replaced(quiet, "repeat = 1000000", "repeat = 3000");
  const std::string other = file("other.toml", replaced(short_one, "\"lasts\"", "\"other\""));
  const pid_t pid = start_lasting({other, "-j", "2"});
  ASSERT_EQ(::kill(supervisor_of(lasting_), SIGKILL), 0);
  const auto outcome = end(pid);
  EXPECT_THAT(outcome.out, HasSubstr("1 passed, 0 failed, 0 void, 0 skipped, 1 error in"));
  EXPECT_THAT(outcome.out, HasSubstr("folder: " + lasting_ + "\n"));
  EXPECT_TRUE(nobody_is_left());
}

TEST_F(KvdrillFaults, WhatADescribingEngineLeavesIsEnded) {
  const std::string gate = pipe();
  const std::string engine =
      script("daemon", "if [ \"$1\" = --describe ]; then\n  setsid sh -c ': > " + gate +
                           "; exec sleep 1000' >/dev/null 2>&1 &\n  : < " + gate + "\nfi\nexec " +
                           kWorker + " \"$@\"\n");
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", engine});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_TRUE(nobody_is_left());
}

TEST_F(KvdrillFaults, CtrlCEndsAnEngineThatIsSlowToDescribeItself) {
  const std::string gate = pipe();
  const std::string engine = script("slow", "setsid sleep 1000 &\n: > " + gate + "\nsleep 1000\n");
  const pid_t pid = start({"list", file("a.toml", kPasses), "--engine", engine});
  await_opened(gate);
  ASSERT_EQ(::kill(pid, SIGINT), 0);
  EXPECT_EQ(code(end(pid)), 130);
  EXPECT_TRUE(nobody_is_left());
}

TEST_F(KvdrillFaults, AKilledProgramEndsAnEngineThatIsSlowToDescribeItself) {
  const std::string gate = pipe();
  const std::string engine = script("slow", "setsid sleep 1000 &\n: > " + gate + "\nsleep 1000\n");
  const pid_t pid = start({"list", file("a.toml", kPasses), "--engine", engine});
  await_opened(gate);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(code(end(pid)), -SIGKILL);
  everybody_ends();
}

TEST_F(KvdrillFaults, AnEngineThatCannotStartIsNoExpectedFailure) {
  const std::string engine =
      script("broken", "[ \"$1\" = --describe ] && exec " + kWorker + " --describe\nexit 3\n");
  const std::string text =
      replaced(kPasses, "[drill]", "[drill]\nexpect = \"fail\"\nreason = \"it answers late\"");
  const auto outcome = run({"run", file("a.toml", text), "--engine", engine});
  EXPECT_EQ(code(outcome), 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("worker did not become ready"));
}

TEST_F(KvdrillFaults, AnExpectedFailureSaysWhatFailed) {
  const std::string text =
      replaced(replaced(kPasses, "[drill]", "[drill]\nexpect = \"fail\"\nreason = \"a typo\""),
               "value = \"done\"", "value = \"dune\"");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("(fails as expected: stopped: stop returned 'done', expected "
                                     "'dune'; a typo)"));
}

TEST_F(KvdrillFaults, AFullDiskIsNotTheEnginesFault) {
  prepare_ = [this] { return mounted("size=256k"); };
  const auto outcome = run({"run", file("a.toml", kPasses)});
  if (code(outcome) == kNotPrepared) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(code(outcome), 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("no space on " + root_ + "/runs"));
}

TEST_F(KvdrillFaults, ADiskThatFillsUpMeanwhileIsNotTheEnginesFault) {
  prepare_ = [this] { return mounted("size=20m"); };
  const std::string engine =
      script("fills", "[ \"$1\" = --describe ] && exec " + kWorker +
                          " --describe\nhead -c 100M /dev/zero > \"$TMPDIR/all\"\nexit 1\n");
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", engine});
  if (code(outcome) == kNotPrepared) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(code(outcome), 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("no space on " + root_ + "/runs/"));
  EXPECT_THAT(outcome.out, HasSubstr(": 0 bytes are left"));
  EXPECT_THAT(outcome.out, HasSubstr("what failed may be due to that"));
}

TEST_F(KvdrillFaults, AProcessThatFindsTheDiskFullIsBelieved) {
  const std::string engine =
      script("says", "[ \"$1\" = --describe ] && exec " + kWorker +
                         " --describe\necho 'No space left on device' >&2\nexit 1\n");
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", engine});
  EXPECT_EQ(code(outcome), 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("space: error: a process says: No space left on device"));
}

TEST_F(KvdrillFaults, AFolderTooLongForSocketsIsRefusedBeforeAnythingStarts) {
  const std::string runs = root_ + "/" + std::string(100, 'r');
  const auto outcome = end(start({"run", file("a.toml", kPasses), "--runs", runs}));
  EXPECT_EQ(code(outcome), 2) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("holds 107"));
  EXPECT_THAT(outcome.err, HasSubstr(std::to_string(runs.size() - 51) + " too many"));
  EXPECT_FALSE(std::filesystem::exists(runs));
}

TEST_F(KvdrillFaults, ADriverThatCannotBeLoadedIsRefused) {
  const auto outcome = run({"run", file("a.toml", kPasses), "--driver", root_ + "/absent.so"});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_THAT(outcome.err, HasSubstr("--driver " + root_ + "/absent.so"));
  const auto no_library = run({"run", file("a.toml", kPasses), "--driver", "/bin/true"});
  EXPECT_EQ(code(no_library), 2) << no_library.out;
}

TEST_F(KvdrillFaults, AWrapperAroundAnEngineIsToldToExec) {
  const std::string engine = script("wraps", "[ \"$1\" = --describe ] && exec " + kWorker +
                                                 " --describe\n" + kWorker + " \"$@\"\nexit $?\n");
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", engine});
  EXPECT_EQ(code(outcome), 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("attached as worker than the one that was started"));
  EXPECT_THAT(outcome.out, HasSubstr("must `exec` the engine"));
  EXPECT_TRUE(nobody_is_left());
}

TEST_F(KvdrillFaults, AQueueOfConnectionsThatIsFullIsCalledSo) {
  const std::string text =
      replaced(kPasses, "  {call", R"(  {hold = "listener.accepted", as = "park"},
  {repeat = 100000, steps = [
    {client = "c", connect = "worker"},
    {client = "c", close = true},
  ]},
  {call)");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("unavailable): its queue is full of connections that nobody has accepted"));
}

TEST_F(KvdrillFaults, ControlBytesOfAFileDoNotReachTheTerminal) {
  const std::string text = replaced(replaced(kPasses, "\"stopped\"", "\"st\\u001b[31mopped\""),
                                    "value = \"done\"", "value = \"du\\u001b]0;ne\"");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.out, HasSubstr("st\\x1b[31mopped"));
}

}  // namespace
}  // namespace kv::drill
