#include "harness/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kv::drill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/kvfiles.XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = fs::canonical(path).string();
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string root_;
};

TEST_F(Files, APlainPathHasNothingInItThatSaysNothing) {
  EXPECT_EQ(plain_path("/a//b/./c/"), "/a/b/c");
  EXPECT_EQ(plain_path("/a/b/"), plain_path("/a/b"));
  EXPECT_EQ(plain_path("/"), "/");
  EXPECT_EQ(plain_path("//"), "/");
  EXPECT_EQ(plain_path("x/"), fs::current_path().string() + "/x");
}

// A ".." goes up from where a link leads, not from where it lies.
TEST_F(Files, APlainPathIsThePlaceThatTheKernelFinds) {
  fs::create_directories(root_ + "/far/away");
  fs::create_directory(root_ + "/far/there");
  fs::create_directory_symlink(root_ + "/far/away", root_ + "/link");
  EXPECT_EQ(plain_path(root_ + "/link/../there/"), root_ + "/far/there");
  EXPECT_EQ(plain_path(root_ + "/link/.."), root_ + "/far");
  EXPECT_EQ(plain_path(root_ + "/link/new"), root_ + "/link/new") << "links stay";
  fs::create_directory_symlink(root_ + "/far/there", root_ + "/far/away/last");
  EXPECT_EQ(plain_path(root_ + "/link/../away/last"), root_ + "/far/away/last") << "this one too";
}

TEST_F(Files, ReadsARegularFileWholeAndNoLongerOne) {
  std::ofstream(root_ + "/f") << std::string(100'000, 'x');
  EXPECT_EQ(read_file(root_ + "/f", 100'000), std::string(100'000, 'x'));
  EXPECT_EQ(read_file(root_ + "/f", 99'999).error(), "holds more than 99999 bytes");
  EXPECT_THAT(read_file(root_ + "/absent", 1).error(), HasSubstr("No such file"));
  EXPECT_EQ(read_file(root_, 1).error(), "not a regular file");
  EXPECT_EQ(read_file("/dev/zero", 1).error(), "not a regular file");
  EXPECT_EQ(read_file("/dev/zero", 1, /*or_pipe=*/true).error(),
            "neither a regular file nor a pipe");
}

TEST_F(Files, APipeIsReadToItsEndAndNeverWaitedForWithoutAWriter) {
  const std::string pipe = root_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_file(pipe, 10).error(), "not a regular file");
  EXPECT_EQ(read_file(pipe, 10, /*or_pipe=*/true), "");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_TRUE(write_all(ends[1], "some"));
  ::close(ends[1]);
  EXPECT_EQ(read_file("/dev/fd/" + std::to_string(ends[0]), 10, /*or_pipe=*/true), "some");
  ::close(ends[0]);
}

}  // namespace
}  // namespace kv::drill
