// Supervisors side by side, when the kernel refuses one.
#include "harness/drill/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Runner : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/kvn.XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
  }
  void TearDown() override {
    allow_files(before_.rlim_cur);
    std::filesystem::remove_all(root_);
  }
  void allow_files(rlim_t number) const {
    struct rlimit files = before_;
    files.rlim_cur = number;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  }
  // Drills that do nothing.
  std::vector<Job> jobs(std::size_t number) {
    std::vector<Job> all(number);
    for (Job& job : all) {
      job.drill = &nothing_;
      job.options.engine = "/bin/true";
      job.options.runs_folder = root_;
    }
    return all;
  }
  Drill nothing_;
  std::string root_;
  struct rlimit before_ {};
};

TEST_F(Runner, ASupervisorThatTheKernelRefusesIsAnErrorOfItsDrill) {
  std::vector<std::string> verdicts;
  std::string why;
  RunWatch watch;
  watch.done = [&](std::size_t index, DrillResult result) {
    verdicts.emplace_back(verdict_name(result.verdict));
    if (result.verdict != Verdict::kPass) why = result.checks.at(0).why;
    if (index == 0) allow_files(3);  // no pipe for the second
    if (index == 1) allow_files(before_.rlim_cur);
    return true;
  };
  EXPECT_EQ(run_jobs(jobs(3), 1, watch), RunEnd::kAll);
  EXPECT_THAT(verdicts, ElementsAre("pass", "error", "pass"));
  EXPECT_THAT(why, HasSubstr("Too many open files"));
}

TEST_F(Runner, ARefusedSupervisorWaitsForOneThatRuns) {
  std::vector<std::string> verdicts;
  RunWatch watch;
  watch.started = [&](std::size_t index) {
    if (index == 0) allow_files(3);
  };
  watch.ended = [&](std::size_t) { allow_files(before_.rlim_cur); };
  watch.done = [&](std::size_t, DrillResult result) {
    verdicts.emplace_back(verdict_name(result.verdict));
    return true;
  };
  EXPECT_EQ(run_jobs(jobs(2), 2, watch), RunEnd::kAll);
  EXPECT_THAT(verdicts, ElementsAre("pass", "pass"));
}

TEST_F(Runner, EveryJobIsStartedAndEndedOnce) {
  std::vector<int> count(4, 0);
  RunWatch watch;
  watch.started = [&count](std::size_t index) { count.at(index) += 1; };
  watch.ended = [&count](std::size_t index) { count.at(index) += 10; };
  watch.done = [](std::size_t, DrillResult) { return true; };
  run_jobs(jobs(4), 2, watch);
  EXPECT_THAT(count, ElementsAre(11, 11, 11, 11));
}

}  // namespace
}  // namespace kv::drill
