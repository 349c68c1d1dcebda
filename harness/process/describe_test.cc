#include "harness/process/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;

TEST(Describe, IsWhatTheProgramPrintsWhenAskedTo) {
  EXPECT_EQ(describe("/bin/echo", 60'000).value_or("?"), "--describe\n");
}

TEST(Describe, SaysWhyThereIsNone) {
  const auto missing = describe("/no/such/engine", 60'000);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().why, "cannot start /no/such/engine: No such file or directory");
  const auto failing = describe("/bin/false", 60'000);
  ASSERT_FALSE(failing.has_value());
  EXPECT_THAT(failing.error().why, HasSubstr("/bin/false ended with exit code 1"));
}

// In a process of its own, which gets the signal; without the signal it would take ten minutes.
TEST(Describe, IsGivenUpAtASignal) {
  std::string folder = "/tmp/kvd.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string gate = folder + "/gate", program = folder + "/slow";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  std::ofstream(program) << "#!/bin/sh\n: > " << gate << "\nexec sleep 1000\n";
  ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto none = describe(program, 600'000);
    ::_exit(!none && none.error().interrupted ? 0 : 1);
  }
  { const std::ifstream opened(gate); }  // returns when the program runs
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kv::drill
