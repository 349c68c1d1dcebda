#include "kvcore/listener/directory_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <csignal>
#include <optional>
#include <thread>

#include "kvcore/listener/listener_testing.h"

namespace kv {
namespace {

using ::testing::HasSubstr;
using testing::Moments;
using testing::TempDir;

class DirectoryLockTest : public ::testing::Test {
 protected:
  UniqueFd open() const {
    return UniqueFd(::open(root_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  Result<DirectoryLock> take(const UniqueFd& directory, Time deadline = kNever) {
    return DirectoryLock::take(directory.get(), root_.path(), clock_, deadline);
  }
  // Takes it on a thread of its own, which waits for it when this returns.
  std::thread wait_for_it(std::optional<Result<DirectoryLock>>* taken, Time deadline = kNever) {
    const std::size_t before = moments_.count("clock.wait");
    std::thread waiter([this, taken, deadline] { taken->emplace(take(second_, deadline)); });
    if (TestHooks::built_in()) moments_.await("clock.wait", before + 1, "listener.lock");
    return waiter;
  }
  // A process that has the lock until it is killed.
  pid_t start_holder() {
    int ready[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::open(root_.path().c_str(), O_RDONLY | O_DIRECTORY);
      if (::flock(fd, LOCK_EX) == 0 && ::write(ready[1], "", 1) == 1) ::pause();
      ::_exit(1);
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    return child;
  }
  static void end(pid_t child) {
    EXPECT_EQ(::kill(child, SIGKILL), 0);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  }

  TempDir root_;
  ManualClock clock_;
  Moments moments_;
  const UniqueFd first_ = open(), second_ = open();
};

TEST_F(DirectoryLockTest, IsHeldByOneUntilItGivesItUp) {
  std::optional<Result<DirectoryLock>> taken;
  std::optional<DirectoryLock> held(std::move(*take(first_)));
  std::thread waiter = wait_for_it(&taken);
  held.reset();
  waiter.join();
  EXPECT_TRUE(taken->ok()) << taken->status().to_string();
}

TEST_F(DirectoryLockTest, WhatHappensInTheDirectoryMeanwhileIsNotTheEndOfIt) {
  std::optional<Result<DirectoryLock>> taken;
  std::optional<DirectoryLock> held(std::move(*take(first_)));
  std::thread waiter = wait_for_it(&taken);
  const std::size_t before = moments_.count("clock.wait");
  { const UniqueFd passer_by = open(); }
  if (TestHooks::built_in()) moments_.await("clock.wait", before + 1, "listener.lock");
  EXPECT_EQ(::flock(first_.get(), LOCK_EX | LOCK_NB), 0);  // it still is the first one's
  held.reset();
  waiter.join();
  EXPECT_TRUE(taken->ok()) << taken->status().to_string();
}

TEST_F(DirectoryLockTest, EndsWithTheProcessThatHasIt) {
  for (int round = 0; round < 50; ++round) {
    const pid_t holder = start_holder();
    std::optional<Result<DirectoryLock>> taken;
    std::thread waiter = wait_for_it(&taken);
    end(holder);
    waiter.join();
    EXPECT_TRUE(taken->ok()) << taken->status().to_string();
  }
}

TEST_F(DirectoryLockTest, TheLimitNamesTheProcessThatHasIt) {
  const pid_t holder = start_holder();
  std::optional<Result<DirectoryLock>> taken;
  std::thread waiter = wait_for_it(&taken, clock_.now() + std::chrono::seconds(5));
  clock_.set(clock_.now() + std::chrono::seconds(5));
  waiter.join();
  EXPECT_EQ(taken->status().code(), Code::kDeadline);
  EXPECT_THAT(taken->status().to_string(), HasSubstr("process " + std::to_string(holder) + " ("));
  EXPECT_THAT(taken->status().to_string(), HasSubstr(root_.path()));
  end(holder);
}

TEST_F(DirectoryLockTest, ALimitThatHasPassedTakesWhatIsFreeAndNothingElse) {
  {
    const auto free = take(first_, clock_.now());
    EXPECT_TRUE(free.ok());
    const auto refused = take(second_, clock_.now());
    EXPECT_EQ(refused.status().code(), Code::kDeadline);
    EXPECT_THAT(refused.status().to_string(), HasSubstr("this process"));
  }
  EXPECT_TRUE(take(second_, clock_.now()).ok());
}

}  // namespace
}  // namespace kv
