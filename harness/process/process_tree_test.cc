// Who is ended of the processes below this one, and by what a process is known.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/process/process.h"

namespace kv::drill {
namespace {

constexpr int kLimitMs = 60'000;

pid_t sleeper() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  for (;;) ::pause();
}

bool lives(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

TEST(EndDescendants, SparesWhoIsNamed) {
  const pid_t spared = sleeper();
  const pid_t other = sleeper();
  std::vector<pid_t> killed;
  EXPECT_TRUE(end_descendants(kLimitMs, &killed, {spared}));
  EXPECT_EQ(killed, std::vector<pid_t>{other});
  EXPECT_TRUE(lives(spared));
  EXPECT_EQ(own_children(), std::vector<pid_t>{spared});
  EXPECT_TRUE(end_descendants(kLimitMs, nullptr));
  EXPECT_TRUE(own_children().empty());
}

TEST(ProcessIdentity, IsTheSameFromEverywhereUntilTheProcessIsReaped) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string own = process_identity(::getpid());
    ::_exit(::write(ends[1], own.data(), own.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  char text[256];
  const ssize_t n = ::read(ends[0], text, sizeof text);
  ASSERT_GT(n, 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_identity(pid), std::string(text, static_cast<std::size_t>(n)));
  EXPECT_EQ(process_identity(pid).find(std::to_string(pid) + " "), 0u);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(process_identity(pid), "");
  ::close(ends[0]);
}

}  // namespace
}  // namespace kv::drill
