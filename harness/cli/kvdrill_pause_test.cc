// The program from the outside: --pause-at.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/board/proc_stat.h"
#include "harness/cli/kvdrill_test_support.h"

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kMaps = R"(
name = "maps"
about = "A request maps two pages."
[processes]
worker = {role = "worker"}
[drill]
deadline = "2s"
steps = [
  {start = "worker"},
  {client = "c", connect = "worker"},
  {id = "mapped", client = "c", request = {cmd = "map_to_kv_tensors", offsets = [0, 2097152], group_id = 0}, reply = {status = "success"}},
  {call = "shutdown", in = "worker", as = "stop"},
  {id = "stopped", returns = "stop", value = "done"},
  {exit = "worker"},
]
)";

class KvdrillPause : public Kvdrill {
 protected:
  void SetUp() override {
    Kvdrill::SetUp();
    ASSERT_EQ(::pipe2(input_ends_, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(error_ends_, O_CLOEXEC), 0);
    input_ = input_ends_[0];
    errors_ = error_ends_[1];
  }
  void TearDown() override {
    for (const int end : {input_ends_[0], input_ends_[1], error_ends_[0]}) ::close(end);
    Kvdrill::TearDown();
  }
  // Starts the drill, and returns when it stands still.
  pid_t start_paused(const std::string& at) {
    const pid_t pid =
        start({"run", file("maps.toml", kMaps), "--runs", root_ + "/runs", "--pause-at", at});
    ::close(errors_);
    errors_ = -1;
    char c = 0;
    while (said_.find("Enter") == std::string::npos && ::read(error_ends_[0], &c, 1) == 1) {
      said_ += c;
    }
    std::sscanf(said_.substr(said_.find(", process ")).c_str(), ", process %d, thread %d",
                &held_pid_, &held_tid_);
    return pid;
  }

  int input_ends_[2] = {-1, -1}, error_ends_[2] = {-1, -1};
  std::string said_;
  pid_t held_pid_ = 0, held_tid_ = 0;
};

TEST_F(KvdrillPause, StandsThereAndGoesOnAtEnter) {
  const pid_t pid = start_paused("vmm.map#2@worker");
  EXPECT_THAT(said_, StartsWith("paused at vmm.map["));
  EXPECT_THAT(said_, HasSubstr("worker/listener.w0"));
  EXPECT_THAT(said_, HasSubstr("gdb -p " + std::to_string(held_pid_) + " "));
  // It is that very thread, and it is held: nothing ends its sleep while we look.
  const std::string task =
      "/proc/" + std::to_string(held_pid_) + "/task/" + std::to_string(held_tid_);
  ASSERT_TRUE(std::filesystem::exists(task));
  const auto stat = parse_stat(slurp(task + "/stat"));
  ASSERT_TRUE(stat.has_value());
  EXPECT_NE(held_pid_, held_tid_);
  EXPECT_EQ(runs_left().size(), 1u);
  ASSERT_EQ(::write(input_ends_[1], "\n", 1), 1);
  const ProgramEnd outcome = end(pid);
  EXPECT_EQ(code(outcome), 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("1 passed"));
}

TEST_F(KvdrillPause, GoesOnAtTheEndOfItsInput) {
  const pid_t pid = start_paused("listener.handler.begin");
  ::close(input_ends_[1]);
  input_ends_[1] = -1;
  EXPECT_EQ(code(end(pid)), 0);
}

TEST_F(KvdrillPause, GoesOnWithoutAnyInput) {
  errors_ = input_ = -1;
  prepare_ = [] { return ::close(STDIN_FILENO) == 0; };
  const ProgramEnd outcome = run({"run", file("maps.toml", kMaps), "--pause-at", "vmm.map"});
  EXPECT_EQ(code(outcome), 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("paused at vmm.map"));
}

TEST_F(KvdrillPause, AnInterruptEndsARunThatStands) {
  const pid_t pid = start_paused("vmm.map");
  ::kill(pid, SIGINT);
  EXPECT_EQ(code(end(pid)), 130);
  everybody_ends();
  EXPECT_TRUE(runs_left().empty());
}

TEST_F(KvdrillPause, ARunThatNeverComesThereIsVoid) {
  errors_ = input_ = -1;
  const ProgramEnd outcome = run({"run", file("maps.toml", kMaps), "--pause-at", "vmm.unmap#99"});
  EXPECT_EQ(code(outcome), 3);
  EXPECT_THAT(outcome.out, HasSubstr("pause at vmm.unmap#99: void: "));
}

TEST_F(KvdrillPause, AWrongPlaceIsRefusedBeforeAnythingStarts) {
  errors_ = input_ = -1;
  const std::string path = file("maps.toml", kMaps);
  const ProgramEnd typo = run({"run", path, "--pause-at", "vmm.mpa"});
  EXPECT_EQ(code(typo), 2);
  EXPECT_THAT(typo.err, HasSubstr("--pause-at: unknown point \"vmm.mpa\""));
  EXPECT_THAT(typo.err, HasSubstr("nearest: vmm.map"));
  EXPECT_EQ(code(run({"run", path, "--pause-at", ""})), 2);
  EXPECT_THAT(run({"run", path, "--pause-at", "a\n::error::b"}).err, HasSubstr("\\x0a::error::b"));
  EXPECT_THAT(run({"run", path, "--pause-at", "vmm.map@wroker"}).err,
              HasSubstr("unknown process \"wroker\", expected worker"));
  EXPECT_THAT(run({"run", path, "--repeat", "3", "--pause-at", "vmm.map"}).err,
              HasSubstr("one run can stand still, not 3 runs of 1 drill"));
}

}  // namespace
}  // namespace kv::drill
