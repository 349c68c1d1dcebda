// What a limit of the machine does to a verdict. With real limits: harness/cli.
#include "harness/drill/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "harness/process/process.h"

namespace kv::drill {
namespace {

using ::testing::HasSubstr;

struct Injecting {
  static std::string text() { return "inject"; }
  void check(Flow&) const {}
  static Outcome carry_out(Executor&) { return {}; }
  static void foretell(Ahead& ahead) { ahead.codes.insert(EMFILE); }
};

class Machine : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/kvmXXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    folder_ = std::make_unique<RunFolder>(*RunFolder::make(root_));
    result_.verdict = Verdict::kFail;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void process_says(int error) {
    const std::string words = std::generic_category().message(error);
    result_.checks = {{"no_crash", Verdict::kFail, "its last words: '" + words + "'", {}}};
  }
  void process_dies_by(int signal) {
    result_.processes.resize(1);
    result_.processes[0].signal = signal;
  }
  // What is said with this limit.
  std::string blamed(__rlimit_resource_t resource, rlim_t limit) {
    struct rlimit before {};
    EXPECT_EQ(::getrlimit(resource, &before), 0);
    struct rlimit low = before;
    low.rlim_cur = limit;
    EXPECT_EQ(::setrlimit(resource, &low), 0);
    const auto found = blame_machine(*folder_, drill_, result_);
    EXPECT_EQ(::setrlimit(resource, &before), 0);
    EXPECT_TRUE(!found || found->verdict == Verdict::kError);
    return found ? found->name + ": " + found->why : "";
  }

  std::string root_;
  std::unique_ptr<RunFolder> folder_;
  Drill drill_;
  DrillResult result_;
};

TEST_F(Machine, ALowLimitIsBlamedWhenAProcessMetIt) {
  process_says(EMFILE);
  EXPECT_THAT(blamed(RLIMIT_NOFILE, 64), HasSubstr("descriptors: the open files of a process are "
                                                   "limited to 64, expected 256 or more: raise"));
  process_says(ENOMEM);
  EXPECT_THAT(blamed(RLIMIT_AS, rlim_t{64} << 30), HasSubstr("expected no limit"));
  process_says(EFBIG);
  EXPECT_THAT(blamed(RLIMIT_FSIZE, 1 << 20), HasSubstr("raise `ulimit -f`"));
}

TEST_F(Machine, ASignalTellsItToo) {
  process_dies_by(SIGXFSZ);
  EXPECT_THAT(blamed(RLIMIT_FSIZE, 1 << 20), HasSubstr("bytes of a file are limited to 1048576"));
  process_dies_by(SIGSEGV);
  EXPECT_EQ(blamed(RLIMIT_FSIZE, 1 << 20), "");
}

TEST_F(Machine, AnEngineIsNotExcusedByALimitThatIsHighOrThatItDidNotMeet) {
  EXPECT_EQ(blamed(RLIMIT_NOFILE, 64), "");
  process_says(EMFILE);
  EXPECT_EQ(blamed(RLIMIT_NOFILE, 256), "");
  result_.verdict = Verdict::kPass;
  EXPECT_EQ(blamed(RLIMIT_NOFILE, 64), "");
}

TEST_F(Machine, ADrillThatInjectsItMeansIt) {
  process_says(EMFILE);
  drill_.steps.resize(1);
  drill_.steps[0].deed = Injecting();
  EXPECT_EQ(blamed(RLIMIT_NOFILE, 64), "");
}

TEST_F(Machine, ProcessesAreCountedAndAllGivenBack) {
  EXPECT_EQ(processes_left(3), 3);
  EXPECT_TRUE(own_children().empty());
}

}  // namespace
}  // namespace kv::drill
