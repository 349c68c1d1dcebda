// A file that several processes share: whole and named at once, removed by nobody else, read and
// written so that nobody dies of it.
#include "kvcore/cache/shared_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fakes/doubles/test_hooks.h"

namespace kv {
namespace {

using ::testing::HasSubstr;
using Owner = SharedFile::Owner;

class SharedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char root[] = "/tmp/kvshared.XXXXXX";
    ASSERT_NE(::mkdtemp(root), nullptr);
    root_ = root;
    path_ = root_ + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  SharedFile create(bool lock = false) {
    auto made = SharedFile::create(path_, "contents", lock);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }
  Status open(Owner owner = Owner::kThisUser) { return SharedFile::open(path_, 8, owner).status(); }
  std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(root_), {});
  }
  std::string root_, path_;
};

// A driver may keep a killed process for a while: a child without descriptors stands in for it.
TEST_F(SharedFileTest, ALockEndsWithTheDescriptors) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto made = SharedFile::create(path_, "contents", /*lock=*/true);
    if (!made.ok()) ::_exit(1);
    ::close_range(3, ~0u, 0);  // also the pipe, which tells that it is done
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char c = 0;
  EXPECT_EQ(::read(ends[0], &c, 1), 0);
  ::close(ends[0]);
  auto file = SharedFile::open(path_, 8, Owner::kThisUser);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->try_lock(0));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(SharedFileTest, IsForThisUserAloneAndReplacesNothing) {
  const SharedFile file = create();
  struct stat made {};
  ASSERT_EQ(::stat(path_.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 07777, 0600u);
  EXPECT_EQ(made.st_nlink, 1u);
  EXPECT_EQ(SharedFile::create(path_, "other", false).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(file.has_its_name());
  EXPECT_EQ(files(), 1);
  const auto nowhere = SharedFile::create(root_ + "/no/file", "x", false);
  EXPECT_EQ(nowhere.status().code(), Code::kNotFound);
  EXPECT_THAT(nowhere.status().to_string(), HasSubstr(root_ + "/no/"));
}

// Killed between making and naming, at its very moment.
TEST_F(SharedFileTest, AKillBeforeItsNameLeavesNothing) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "needs the points";
  const auto killed = [this](bool nameless) {
    const pid_t child = ::fork();
    if (child == 0) {
      TestHooks hooks;
      if (!nameless) hooks.skip("shared_file.nameless");
      hooks.on_reached([](const TestHooks::Seen& seen) {
        if (seen.name == "shared_file.link") ::kill(::getpid(), SIGKILL);
      });
      static_cast<void>(SharedFile::create(path_, "contents", false));
      ::_exit(0);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    EXPECT_TRUE(WIFSIGNALED(state));
  };
  killed(true);
  EXPECT_EQ(files(), 0);
  create();
  killed(false);
  EXPECT_EQ(files(), 2);
}

TEST_F(SharedFileTest, AFileSystemWithoutNamelessFilesIsSaid) {
  const auto made = SharedFile::create("/proc/file", "x", false);
  EXPECT_EQ(made.status().code(), Code::kFailedPrecondition) << made.status().to_string();
  EXPECT_THAT(made.status().to_string(), HasSubstr("O_TMPFILE"));
}

TEST_F(SharedFileTest, NoLinkIsFollowed) {
  create();
  std::filesystem::rename(path_, root_ + "/target");
  std::filesystem::create_symlink(root_ + "/target", path_);
  EXPECT_EQ(open().code(), Code::kProtocol);
  EXPECT_THAT(open(Owner::kAnybody).to_string(), HasSubstr("symbolic link"));
  EXPECT_EQ(SharedFile::create(path_, "x", false).status().code(), Code::kAlreadyExists);
}

TEST_F(SharedFileTest, AnotherUsersFileIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  create();
  EXPECT_TRUE(open().ok());
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(open().code(), Code::kFailedPrecondition);
  EXPECT_THAT(open().to_string(), HasSubstr("it belongs to user 65534, expected user 0"));
  EXPECT_TRUE(open(Owner::kAnybody).ok());
}

TEST_F(SharedFileTest, RemovesWhatIsItsOwnOnly) {
  SharedFile file = create();
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  std::ofstream(path_) << "another's";
  EXPECT_TRUE(file.unlink().ok());
  EXPECT_TRUE(std::filesystem::exists(path_));
  std::filesystem::remove(path_);
  // Whoever is just removing the name has its lock, and is let do it.
  SharedFile again = create();
  auto other = SharedFile::open(path_, 8, Owner::kThisUser);
  ASSERT_TRUE(other.ok() && other->try_lock(off_t{1} << 40));
  EXPECT_TRUE(again.unlink().ok());
  EXPECT_TRUE(std::filesystem::exists(path_));
  other->unlock(off_t{1} << 40);
  EXPECT_TRUE(again.unlink().ok());
  EXPECT_EQ(files(), 0);
}

// The folder is the one that it was made in, whatever stands at its path afterwards.
TEST_F(SharedFileTest, ItsFolderIsResolvedOnce) {
  const std::string folder = root_ + "/a";
  std::filesystem::create_directory(folder);
  auto file = SharedFile::create(folder + "/file", "contents", false);
  ASSERT_TRUE(file.ok());
  std::filesystem::rename(folder, root_ + "/b");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/file") << "another's";
  EXPECT_TRUE(file->has_its_name());
  EXPECT_TRUE(file->unlink().ok());
  EXPECT_FALSE(std::filesystem::exists(root_ + "/b/file"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/file"));
}

TEST_F(SharedFileTest, ReadsWhatIsThereAndSaysWhatWasCutOff) {
  SharedFile file = create();
  char bytes[8] = {};
  ASSERT_TRUE(file.read(0, bytes, 8).ok());
  EXPECT_EQ(std::string(bytes, 8), "contents");
  ASSERT_EQ(::truncate(path_.c_str(), 3), 0);
  const Status cut = file.read(0, bytes, 8);
  EXPECT_EQ(cut.code(), Code::kProtocol);
  EXPECT_THAT(cut.to_string(), HasSubstr("cut it off: it ends before byte 8"));
  EXPECT_TRUE(file.write(4, "ents", 4).ok());
  ASSERT_TRUE(file.read(0, bytes, 8).ok());
  EXPECT_EQ(std::string(bytes, 8), std::string("con\0ents", 8));
}

}  // namespace
}  // namespace kv
