#include "harness/drill/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "harness/process/process.h"

namespace kv::drill {
namespace {

using ::testing::HasSubstr;

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() {
    std::string folder = "/tmp/kvrXXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "mkdtemp: " << errno;
    folder_ = folder;
  }
  ~RunFolderTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  std::string folder_;
};

TEST_F(RunFolderTest, HasItsPartsForThisUserOnlyAndANameOfItsOwn) {
  const auto one = RunFolder::make(folder_ + "/a/b");
  const auto other = RunFolder::make(folder_ + "/a/b");
  ASSERT_TRUE(one && other);
  EXPECT_NE(one->path(), other->path());
  EXPECT_NE(one->ipc_name(), other->ipc_name());
  EXPECT_EQ(one->ipc_name().find_first_not_of("abcdefghijklmnopqrstuvwxyz"
                                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"),
            std::string::npos);
  for (const std::string& part :
       {one->path(), one->socket_root(), one->segment_root(), one->card()}) {
    struct stat info {};
    ASSERT_EQ(::stat(part.c_str(), &info), 0) << part;
    EXPECT_EQ(info.st_mode & 07777, 0700u) << part;
  }
}

// 107 bytes are what an address holds; the rest is for the folder that holds the runs.
TEST_F(RunFolderTest, AStageSocketLeavesRoomForTheFolderOfTheRuns) {
  const auto folder = RunFolder::make(folder_);
  ASSERT_TRUE(folder) << folder.error();
  const std::string path =
      folder->socket_root() + "/kvcached-tp-" + folder->ipc_name() + "-0123abcd/pp12/w1234.sock";
  EXPECT_LE(path.size() - folder_.size(), 60u) << path;
}

TEST_F(RunFolderTest, AFolderOfTheRunsWithoutRoomForSocketsIsTold) {
  const auto folder = RunFolder::make(folder_);
  ASSERT_TRUE(folder) << folder.error();
  const std::string behind = std::string(folder->socket_root()).substr(folder_.size()) +
                             "/kvcached-tp-" + folder->ipc_name() + "-0123abcd/pp12/w1234.sock";
  const std::size_t most = 107 - behind.size();
  EXPECT_EQ(too_long_for_sockets(std::string(most, 'x'), 0), "");
  EXPECT_THAT(too_long_for_sockets(std::string(most + 3, 'x'), 0), HasSubstr("3 too many"));
  EXPECT_EQ(too_long_for_sockets(std::string(most - 5, 'x'), 14), "");
  EXPECT_THAT(too_long_for_sockets(std::string(most - 5, 'x'), 15), HasSubstr("1 too many"));
}

TEST_F(RunFolderTest, IsFoundByTheProcessThatMadeIt) {
  const auto folder = RunFolder::make(folder_);
  ASSERT_TRUE(folder) << folder.error();
  EXPECT_EQ(RunFolder::of(folder_, process_identity(::getpid())), folder->path());
  EXPECT_EQ(RunFolder::of(folder_, "1 2"), "");
  EXPECT_EQ(RunFolder::of(folder_ + "/absent", process_identity(::getpid())), "");
}

TEST_F(RunFolderTest, SpaceThatIsNotThereIsTold) {
  EXPECT_EQ(no_space_on(folder_, 0), "");
  EXPECT_THAT(no_space_on(folder_, ~std::uint64_t{0}), HasSubstr("no space on " + folder_));
  EXPECT_EQ(no_space_on(folder_ + "/absent", 0), "");
}

TEST_F(RunFolderTest, WritesAppendsAndRemoves) {
  const auto folder = RunFolder::make(folder_);
  ASSERT_TRUE(folder);
  EXPECT_TRUE(folder->write("a.txt", "one"));
  EXPECT_TRUE(folder->write("a.txt", "two "));
  EXPECT_TRUE(folder->append("a.txt", "three"));
  std::string text;
  std::getline(std::ifstream(folder->path() + "/a.txt"), text);
  EXPECT_EQ(text, "two three");
  EXPECT_FALSE(folder->write("no/such/folder.txt", "x"));
  EXPECT_EQ(folder->remove(), "");
  EXPECT_FALSE(std::filesystem::exists(folder->path()));
}

// An engine may put anything where results will be written.
TEST_F(RunFolderTest, WritesItsOwnFileWhateverIsInItsPlace) {
  const auto folder = RunFolder::make(folder_);
  ASSERT_TRUE(folder);
  const std::string other = folder_ + "/other", link = folder->path() + "/a.txt",
                    pipe = folder->path() + "/b.txt";
  std::ofstream(other) << "not ours";
  std::filesystem::create_symlink(other, link);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(folder->write("a.txt", "ours"));
  EXPECT_TRUE(folder->write("b.txt", "ours"));
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(pipe)));
  std::filesystem::remove(link);
  std::filesystem::create_symlink(other, link);
  EXPECT_FALSE(folder->append("a.txt", "ours"));
  std::string text;
  std::getline(std::ifstream(other), text);
  EXPECT_EQ(text, "not ours");
}

TEST_F(RunFolderTest, IsFoundAndRemovedWhereItWasMovedTo) {
  const auto folder = RunFolder::make(folder_);
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->where(), folder->path());
  const std::string moved = folder_ + "/moved", other = folder_ + "/other";
  std::filesystem::rename(folder->path(), moved);
  std::filesystem::create_directory(other);
  std::filesystem::create_symlink(other, folder->path());
  EXPECT_EQ(folder->where(), moved);
  EXPECT_TRUE(folder->write("a.txt", "ours"));
  EXPECT_TRUE(std::filesystem::is_empty(other));
  EXPECT_EQ(folder->remove(), "");
  EXPECT_FALSE(std::filesystem::exists(moved));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(folder->path())));
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_EQ(folder->where(), "");
}

TEST_F(RunFolderTest, IsWhereItIsByWhateverPath) {
  std::filesystem::create_directory(folder_ + "/runs");
  std::filesystem::create_directory_symlink("runs", folder_ + "/link");
  for (const std::string& runs : {folder_ + "/link", folder_ + "/runs/", folder_ + "//runs/."}) {
    const auto folder = RunFolder::make(runs);
    ASSERT_TRUE(folder) << folder.error();
    EXPECT_EQ(folder->where(), folder->path());
    std::filesystem::rename(folder->path(), folder_ + "/moved");
    EXPECT_EQ(folder->where(), folder_ + "/moved");
    EXPECT_EQ(folder->remove(), "");
  }
}

TEST_F(RunFolderTest, NoPipeIsWaitedFor) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(last_words(pipe, 100), "");
  std::filesystem::create_directory(folder_ + "/run");
  ASSERT_EQ(::mkfifo((folder_ + "/run/supervisor").c_str(), 0600), 0);
  EXPECT_EQ(RunFolder::of(folder_, "1 2"), "");
}

TEST_F(RunFolderTest, APlaceThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ + "/file") << "in the way";
  const auto folder = RunFolder::make(folder_ + "/file/below");
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error(), HasSubstr(folder_ + "/file"));
}

TEST_F(RunFolderTest, OutputsOfAProcessThatIsStartedAgainAreKeptApart) {
  const auto folder = RunFolder::make(folder_);
  ASSERT_TRUE(folder);
  EXPECT_NE(folder->output("worker", 1, "stderr"), folder->output("worker", 2, "stderr"));
}

TEST_F(RunFolderTest, LastWordsAreTheEndOfAFileOnOneLine) {
  std::ofstream(folder_ + "/e") << "first\n\nsecond\n  \nthird\n";
  EXPECT_EQ(last_words(folder_ + "/e", 400), "first / second / third");
  EXPECT_EQ(last_words(folder_ + "/e", 6), "third");
  EXPECT_EQ(last_words(folder_ + "/none", 6), "");
}

TEST_F(RunFolderTest, LastWordsOfASanitizerAreTheBeginOfItsReport) {
  std::ofstream(folder_ + "/e") << "chatter\n==7==ERROR: AddressSanitizer: heap-use-after-free\n"
                                   "READ of size 8\n"
                                << std::string(5'000, 'x') << "\nlegend\n";
  EXPECT_EQ(last_words(folder_ + "/e", 62),
            "==7==ERROR: AddressSanitizer: heap-use-after-free / READ of size");
}

}  // namespace
}  // namespace kv::drill
