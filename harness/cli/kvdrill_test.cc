// The program from the outside: exit codes, messages, and what is left when it is stopped or
// killed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/cli/kvdrill_test_support.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Kvdrill, APassingRunIsZeroAndLeavesNoFolder) {
  const auto outcome = run({"run", file("a.toml", kPasses)});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 passed, 0 failed, 0 void, 0 skipped, 0 errors"));
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, JsonIsAllThatStandardOutputHolds) {
  const auto outcome = run({"run", file("a.toml", kPasses), "--format", "json"});
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["passed"], 1);
  EXPECT_EQ(json["scenarios"][0]["processes"][0]["exit"], 0);
}

TEST_F(Kvdrill, AFailedCheckIsOneAndSaysWhereAndHowToRepeat) {
  std::string text = kPasses;
  text.replace(text.find("value = \"done\""), 14, "value = \"dune\"");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("stopped"));
  EXPECT_THAT(outcome.out, HasSubstr("a.toml:10:"));
  EXPECT_THAT(outcome.out, HasSubstr("repeat: "));
  ASSERT_EQ(runs_left().size(), 1u);
  EXPECT_TRUE(fs::exists(runs_left()[0] + "/trace.txt"));
  EXPECT_TRUE(fs::exists(runs_left()[0] + "/plan.txt"));
  EXPECT_TRUE(fs::exists(runs_left()[0] + "/verdict.json"));
}

TEST_F(Kvdrill, AFaultThatNeverFiresIsVoid) {
  std::string text = kPasses;
  text.replace(text.find("{start = \"worker\"},"), 19,
               "{start = \"worker\"}, {fail = \"vmm.map\", code = 2, in = \"worker\"},");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 3) << outcome.out << outcome.err;
}

TEST_F(Kvdrill, AnInvalidFileIsTwoAndStartsNothing) {
  std::string text = kPasses;
  text.replace(text.find("returns"), 7, "retruns");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("a.toml:10:"));
  EXPECT_THAT(outcome.err, HasSubstr("returns"));
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, AMissingFileOrEngineIsTwo) {
  EXPECT_EQ(code(run({"run", root_ + "/absent.toml"})), 2);
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", root_ + "/absent"});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_THAT(outcome.err, HasSubstr(root_ + "/absent"));
}

TEST_F(Kvdrill, AnEngineThatDoesNotDescribeItselfIsNamed) {
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", "/bin/true"});
  EXPECT_EQ(code(outcome), 4);
  EXPECT_THAT(outcome.err, HasSubstr("/bin/true"));
}

TEST_F(Kvdrill, JunitAndPageAreWritten) {
  const auto outcome = run(
      {"run", file("a.toml", kPasses), "--junit", root_ + "/j.xml", "--report", root_ + "/report"});
  EXPECT_EQ(code(outcome), 0) << outcome.err;
  EXPECT_THAT(slurp(root_ + "/j.xml"), HasSubstr("<testcase"));
  EXPECT_THAT(slurp(root_ + "/report/index.html"), HasSubstr("passes"));
}

TEST_F(Kvdrill, CtrlCLeavesNothing) {
  const pid_t pid = start_lasting();
  ASSERT_EQ(::kill(pid, SIGINT), 0);
  const auto outcome = end(pid);
  EXPECT_EQ(code(outcome), 130) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("interrupted"));
  everybody_ends();
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, AKilledRunnerLeavesNothing) {
  const pid_t pid = start_lasting();
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(code(end(pid)), -SIGKILL);
  everybody_ends();
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, TheRepeatCommandRepeats) {
  std::string text = kPasses;
  text.replace(text.find("value = \"done\""), 14, "value = \"dune\"");
  const auto outcome = run({"run", file("it's a.toml", text)});
  const std::size_t at = outcome.out.find("repeat: ");
  ASSERT_NE(at, std::string::npos) << outcome.out;
  const std::string command = outcome.out.substr(at + 8, outcome.out.find('\n', at) - at - 8);
  const int status = std::system(("cd / && " + command + " > " + root_ + "/again").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1) << command;
  EXPECT_THAT(slurp(root_ + "/again"), HasSubstr("1 failed"));
  EXPECT_EQ(runs_left().size(), 2u) << "in the same folder of runs: " << command;
}

TEST_F(Kvdrill, RunsSideBySideKeepTheOrderOfTheFiles) {
  std::string other = kPasses;
  other.replace(other.find("\"passes\""), 8, "\"another\"");
  file("a.toml", other);
  file("b.toml", kPasses);
  const auto outcome =
      run({"run", root_ + "/a.toml", root_ + "/b.toml", "-j", "2", "--repeat", "5"});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_LT(outcome.out.find("another"), outcome.out.find("passes  "));
  EXPECT_THAT(outcome.out, HasSubstr("passed 5 of 5"));
}

}  // namespace
}  // namespace kv::drill
