#include "harness/drill/supervisor_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() {
    std::string folder = "/tmp/kvlXXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "mkdtemp: " << errno;
    root_ = folder;
    process_.name = "worker";
    process_.role = "producer";
    process_.rank = 3;
    process_.stage = 1;
    process_.device = 2;
    process_.arguments = {"--pages", "8"};
    process_.environment = {{"MALLOC_PERTURB_", "165"}};
    options_.engine = "/e/engine";
    options_.driver = "/e/libcuda.so.1";
    drill_.devices = 4;
    drill_.device_bytes = 1 << 21;
  }
  ~LaunchTest() override {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  Launch launch() {
    folder_ = RunFolder::make(root_);
    return make_launch(drill_, options_, *folder_, board_, process_);
  }
  static std::string after(const Launch& launch, const std::string& flag) {
    const auto& all = launch.arguments;
    const auto found = std::find(all.begin(), all.end(), flag);
    return found == all.end() || found + 1 == all.end() ? "" : *(found + 1);
  }

  std::string root_;
  Drill drill_;
  RunOptions options_;
  ProcessSpec process_;
  Board board_{Board::Options{}};
  tl::expected<RunFolder, std::string> folder_ = tl::unexpected(std::string());
};

TEST_F(LaunchTest, EveryProgramFindsItsLibraries) {
  ::setenv("LD_LIBRARY_PATH", "/opt/engine/lib", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  EXPECT_EQ(launch().environment.at("LD_LIBRARY_PATH"), "/opt/engine/lib");
  EXPECT_EQ(inherited_environment().at("LD_LIBRARY_PATH"), "/opt/engine/lib");
  ::unsetenv("LD_LIBRARY_PATH");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(inherited_environment().count("LD_LIBRARY_PATH"), 0u);
}

TEST_F(LaunchTest, TheArgumentsAreTheContracts) {
  const Launch made = launch();
  EXPECT_EQ(made.program, "/e/engine");
  EXPECT_EQ(after(made, "--name"), "worker");
  EXPECT_EQ(after(made, "--role"), "producer");
  EXPECT_EQ(after(made, "--rank"), "3");
  EXPECT_EQ(after(made, "--stage"), "1");
  EXPECT_EQ(after(made, "--device"), "2");
  EXPECT_EQ(after(made, "--ipc"), folder_->ipc_name());
  EXPECT_EQ(after(made, "--socket-root"), folder_->socket_root());
  EXPECT_EQ(after(made, "--segment-root"), folder_->segment_root());
  EXPECT_EQ(after(made, "--driver"), "/e/libcuda.so.1");
  EXPECT_EQ(after(made, "--pages"), "8");
}

TEST_F(LaunchTest, TheEnvironmentIsWhatTheContractSaysAndTheProcessesOwn) {
  const auto environment = launch().environment;
  EXPECT_EQ(environment.at("KVDRILL_PROCESS"), "worker");
  EXPECT_EQ(environment.at("KVDRILL_BOARD"), "3,4");
  EXPECT_EQ(environment.at("KVDRILL_CARD"), folder_->card());
  EXPECT_EQ(environment.at("KVDRILL_CARD_DEVICES"), "4");
  EXPECT_EQ(environment.at("KVDRILL_CARD_BYTES"), "2097152");
  EXPECT_EQ(environment.at("TMPDIR"), folder_->path());
  EXPECT_EQ(environment.at("MALLOC_PERTURB_"), "165");
  EXPECT_EQ(environment.count("HOME"), 0u);
}

TEST_F(LaunchTest, ARealDriverGetsNoFakeCard) {
  options_.fake_card = false;
  EXPECT_EQ(launch().environment.count("KVDRILL_CARD"), 0u);
}

TEST_F(LaunchTest, AnIpcNameOfItsOwnIsKept) {
  process_.ipc = "mine";
  EXPECT_EQ(after(launch(), "--ipc"), "mine");
}

TEST(SanitizerOptionsTest, AreHandedOnAndToldToLeaveTheSignalsAlone) {
  const char* theirs[] = {"PATH=/bin", "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONSX=no", nullptr};
  const auto plain = sanitizer_options(theirs, false);
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain.at("ASAN_OPTIONS"), "detect_leaks=0");
  const auto sanitized = sanitizer_options(theirs, true);
  EXPECT_THAT(sanitized.at("ASAN_OPTIONS"), HasSubstr("detect_leaks=0:handle_segv=0"));
  EXPECT_THAT(sanitized.at("TSAN_OPTIONS"), HasSubstr("handle_abort=0"));
  EXPECT_THAT(sanitizer_options(nullptr, false), IsEmpty());
}

}  // namespace
}  // namespace kv::drill
