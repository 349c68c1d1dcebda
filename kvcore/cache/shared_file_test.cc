#include "kvcore/cache/shared_file.h"

#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace kv {
namespace {

// A driver may keep the memory of a killed process for a while: a child without descriptors stands
// in for it.
TEST(SharedFile, ALockEndsWithTheDescriptorsAlthoughTheMappingLivesOn) {
  char root[] = "/tmp/kvshared.XXXXXX";
  ASSERT_NE(::mkdtemp(root), nullptr);
  const std::string path = std::string(root) + "/file";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto made = SharedFile::create(path, 4096, /*lock=*/true, [](void*) {});
    if (!made.ok()) ::_exit(1);
    ::close_range(3, ~0u, 0);  // also the pipe, which tells that it is done
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char c = 0;
  EXPECT_EQ(::read(ends[0], &c, 1), 0);
  ::close(ends[0]);
  auto file = SharedFile::open(path, 4096);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->try_lock(0));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace kv
