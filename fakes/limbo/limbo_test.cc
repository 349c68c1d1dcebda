#include "fakes/limbo/limbo.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fakes/doubles/model_vmm.h"

namespace kv {
namespace {

constexpr std::size_t kBytes = 4u << 20;

class LimboTest : public ::testing::Test {
 protected:
  DeviceAddress allocate() { return limbo_.allocate(kBytes).value_or(0); }

  ModelVmm vmm_;
  std::string log_;
  Limbo limbo_{vmm_, [this](Severity, std::string_view line) { log_ += line; }};
};

TEST_F(LimboTest, WhatWasNeverSharedIsFreedAtOnce) {
  EXPECT_TRUE(limbo_.free(allocate()).ok());
  EXPECT_EQ(vmm_.used_bytes(), 0u);
  EXPECT_EQ(limbo_.at_exit(), 0u);
  EXPECT_EQ(log_, "");
}

TEST_F(LimboTest, AShareThatNobodyOpenedNeverComesBack) {
  const DeviceAddress address = allocate();
  ASSERT_TRUE(limbo_.share(address).ok());
  EXPECT_TRUE(limbo_.free(address).ok());
  EXPECT_EQ(vmm_.used_bytes(), kBytes);
  EXPECT_EQ(limbo_.kept(), kBytes);
}

TEST_F(LimboTest, AShareIsTakenBackBeforeTheFreeOrAfterIt) {
  for (const bool before : {true, false}) {
    const DeviceAddress address = allocate();
    ASSERT_TRUE(limbo_.share(address).ok());
    if (before) {
      EXPECT_TRUE(limbo_.unshare(address).ok());
    }
    EXPECT_TRUE(limbo_.free(address).ok());
    EXPECT_EQ(limbo_.kept(), before ? 0u : kBytes);
    if (!before) {
      EXPECT_TRUE(limbo_.unshare(address).ok());
    }
    EXPECT_EQ(vmm_.used_bytes(), 0u);
  }
  EXPECT_TRUE(vmm_.broken().empty());
}

TEST_F(LimboTest, SharedTwiceItStaysUntilBothAreTakenBack) {
  const DeviceAddress address = allocate();
  ASSERT_TRUE(limbo_.share(address).ok());
  ASSERT_TRUE(limbo_.share(address).ok());
  EXPECT_TRUE(limbo_.unshare(address).ok());
  EXPECT_TRUE(limbo_.free(address).ok());
  EXPECT_EQ(limbo_.kept(), kBytes);
  vmm_.fault = [](const std::string&, int) { return 999; };
  EXPECT_EQ(limbo_.unshare(address).native(), 999);
  EXPECT_EQ(limbo_.kept(), kBytes);
  vmm_.fault = nullptr;
  EXPECT_EQ(limbo_.at_exit(), kBytes);
}

TEST_F(LimboTest, WhatIsNotSharedCannotBeTakenBack) {
  const DeviceAddress address = allocate();
  EXPECT_EQ(limbo_.unshare(address).code(), Code::kInvalidArgument);
  ASSERT_TRUE(limbo_.share(address).ok());
  EXPECT_TRUE(limbo_.unshare(address).ok());
  EXPECT_EQ(limbo_.unshare(address).code(), Code::kInvalidArgument);
  EXPECT_TRUE(limbo_.free(address).ok());
  EXPECT_EQ(limbo_.unshare(address).code(), Code::kInvalidArgument);
  EXPECT_EQ(vmm_.used_bytes(), 0u);
}

TEST_F(LimboTest, WhatTheDriverRefusesChangesNothing) {
  const DeviceAddress address = allocate();
  vmm_.fault = [](const std::string&, int) { return 999; };
  EXPECT_FALSE(limbo_.allocate(kBytes).ok());
  EXPECT_FALSE(limbo_.share(address).ok());
  EXPECT_FALSE(limbo_.free(address).ok());
  vmm_.fault = nullptr;
  EXPECT_TRUE(limbo_.free(address).ok());
  EXPECT_FALSE(limbo_.free(address).ok());
  EXPECT_EQ(vmm_.used_bytes(), 0u);
  EXPECT_TRUE(vmm_.broken().empty());
}

// The end of a process with four shares in the limbo, with and without heap perturbation.
// (Sanitizers have heaps of their own, and see the mistake for what it is.)
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

int end_with_four_in_the_limbo() {
  ModelVmm vmm;
  std::string log;
  Limbo limbo(vmm, [&](Severity, std::string_view line) { log += line; });
  for (int i = 0; i < 4; ++i) {
    const DeviceAddress address = limbo.allocate(kBytes).value_or(0);
    if (!limbo.share(address).ok() || !limbo.free(address).ok()) return 1;
  }
  const std::size_t read = limbo.at_exit();
  if (log.find("4 shared tensors") == std::string::npos) return 2;
  return read == 4 * kBytes ? 0 : 3;
}

// Its process is the test program, started again for this one.
TEST(LimboExit, WithFourSharesThatNobodyOpened) {
  ASSERT_EQ(end_with_four_in_the_limbo(), 0);
}

int status_of_its_process(const std::string& environment) {
  return std::system(("exec env -i " + environment +
                      " /proc/$PPID/exe --gtest_filter=LimboExit.WithFour* >/dev/null 2>&1")
                         .c_str());
}

TEST(LimboExit, LooksIntoFreedRecordsWhichPerturbationMakesDeadly) {
  const int calm = status_of_its_process("");
  EXPECT_TRUE(WIFEXITED(calm) && WEXITSTATUS(calm) == 0) << calm;
  const int perturbed = status_of_its_process("MALLOC_PERTURB_=165");
  EXPECT_TRUE(WIFSIGNALED(perturbed) && WTERMSIG(perturbed) == SIGSEGV) << perturbed;
}

#endif

}  // namespace
}  // namespace kv
