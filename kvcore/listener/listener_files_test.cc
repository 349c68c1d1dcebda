#include "kvcore/listener/listener_files.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "kvcore/listener/listener_testing.h"

namespace kv {
namespace {

using ::testing::HasSubstr;
using testing::Moments;
using testing::RawClient;
using testing::TempDir;

class SocketFileTest : public ::testing::Test {
 protected:
  Result<SocketFile::Bound> create(const std::string& path) {
    return SocketFile::create(path, root_.path(), turn_);
  }
  std::string at(const std::string& name) const { return root_.path() + "/" + name; }
  bool exists(const std::string& name) const { return std::filesystem::exists(at(name)); }

  mode_t mode(const std::string& name) const {
    struct stat there {};
    return ::stat(at(name).c_str(), &there) == 0 ? there.st_mode & 07777 : 0;
  }

  TempDir root_;
  RealClock clock_;
  const SocketFile::Turn turn_{1, clock_, kNever};
};

TEST_F(SocketFileTest, MakesPrivateDirectoriesAndRemovesWhatIsEmpty) {
  auto bound = create(at("tp/pp1/w0.sock"));
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  for (const char* name : {"tp", "tp/pp1"}) EXPECT_EQ(mode(name), 01700u) << name;
  RawClient client;
  EXPECT_EQ(client.connect(at("tp/pp1/w0.sock")), 0);
  EXPECT_TRUE(bound->file.remove(turn_).ok());
  EXPECT_TRUE(root_.empty());
  EXPECT_TRUE(bound->file.remove(turn_).ok());  // again: there is nothing left to do
}

TEST_F(SocketFileTest, AnotherWorkersSocketKeepsTheDirectory) {
  auto first = create(at("tp/w0.sock"));
  auto stage = create(at("tp/pp1/w0.sock"));
  ASSERT_TRUE(first.ok() && stage.ok());
  EXPECT_TRUE(stage->file.remove(turn_).ok());
  EXPECT_FALSE(exists("tp/pp1"));
  EXPECT_TRUE(exists("tp/w0.sock"));
  EXPECT_TRUE(first->file.remove(turn_).ok());
  EXPECT_TRUE(root_.empty());
}

TEST_F(SocketFileTest, ReplacesASocketThatNobodyListensOn) {
  {
    auto dead = create(at("tp/w0.sock"));
    ASSERT_TRUE(dead.ok());
  }
  ASSERT_TRUE(exists("tp/w0.sock"));
  auto bound = create(at("tp/w0.sock"));
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  RawClient client;
  EXPECT_EQ(client.connect(at("tp/w0.sock")), 0);
}

TEST_F(SocketFileTest, RefusesASocketThatSomebodyListensOn) {
  auto living = create(at("tp/w0.sock"));
  ASSERT_TRUE(living.ok());
  const auto second = create(at("tp/w0.sock"));
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().to_string(), HasSubstr(at("tp/w0.sock")));
  RawClient client;
  EXPECT_EQ(client.connect(at("tp/w0.sock")), 0);
}

TEST_F(SocketFileTest, RefusesSomethingThatIsNoSocket) {
  std::filesystem::create_directory(at("tp"));
  std::ofstream(at("tp/w0.sock")) << "precious";
  EXPECT_EQ(create(at("tp/w0.sock")).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(exists("tp/w0.sock"));
}

TEST_F(SocketFileTest, LeavesNothingOfAFailedCreate) {
  std::filesystem::create_directories(at("other"));
  std::ofstream(at("other/pp1")) << "a file where a directory should be";
  EXPECT_FALSE(create(at("other/pp1/w0.sock")).ok());
  EXPECT_TRUE(exists("other/pp1"));
  EXPECT_FALSE(create(at("a/") + std::string(200, 'b') + "/w0.sock").ok());
  EXPECT_FALSE(exists("a"));
}

TEST_F(SocketFileTest, RefusesAPathThatDoesNotFitOrLiesElsewhere) {
  const auto too_long = create(at(std::string(120, 'x')));
  EXPECT_EQ(too_long.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(too_long.status().to_string(), HasSubstr("107"));
  EXPECT_EQ(create("/elsewhere/w0.sock").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(create(at("tp/../../w0.sock")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(create(at("tp/..")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(create(root_.path() + "/").status().code(), Code::kInvalidArgument);
  EXPECT_THAT(create(at(std::string(83, 'x'))).status().to_string(), HasSubstr("at most 82"));
  EXPECT_EQ(SocketFile::create(at("w0.sock"), "", turn_).status().code(), Code::kInvalidArgument);
}

TEST_F(SocketFileTest, RefusesADirectoryOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  std::filesystem::create_directory(at("tp"));
  ASSERT_EQ(::chown(at("tp").c_str(), 65534, 65534), 0);
  const auto refused = create(at("tp/w0.sock"));
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.status().to_string(), HasSubstr("user 65534"));
  EXPECT_EQ(mode("tp"), 0755u);  // it is there, empty as it is, and as it was
}

TEST_F(SocketFileTest, RefusesASocketOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a socket away";
  { ASSERT_TRUE(create(at("tp/w0.sock")).ok()); }
  ASSERT_EQ(::lchown(at("tp/w0.sock").c_str(), 65534, 65534), 0);
  const auto refused = create(at("tp/w0.sock"));
  EXPECT_EQ(refused.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(refused.status().to_string(), HasSubstr("user 65534"));
  EXPECT_TRUE(exists("tp/w0.sock"));
}

TEST_F(SocketFileTest, RefusesALinkWhereADirectoryShouldBe) {
  std::filesystem::create_directory(at("elsewhere"));
  std::filesystem::create_directory_symlink(at("elsewhere"), at("tp"));
  EXPECT_EQ(create(at("tp/w0.sock")).status().code(), Code::kAlreadyExists);
  EXPECT_FALSE(exists("elsewhere/w0.sock"));
}

TEST_F(SocketFileTest, RefusesADirectoryThatOthersMayWriteIntoAndLeavesItAsItIs) {
  for (const mode_t open : {0777u, 01777u, 0720u}) {
    std::filesystem::create_directory(at("tp"));
    ASSERT_EQ(::chmod(at("tp").c_str(), open), 0);
    const auto refused = create(at("tp/pp1/w0.sock"));
    EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(refused.status().to_string(), HasSubstr("others may write into the directory"));
    EXPECT_EQ(mode("tp"), open);
  }
}

TEST_F(SocketFileTest, ADirectoryThatNoStartMadeIsUsedAndStaysAsItIs) {
  std::filesystem::create_directory(at("tp"));
  ASSERT_EQ(::chmod(at("tp").c_str(), 0755), 0);
  auto bound = create(at("tp/pp1/w0.sock"));
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  EXPECT_EQ(mode("tp"), 0755u);
  EXPECT_TRUE(bound->file.remove(turn_).ok());
  EXPECT_FALSE(exists("tp/pp1"));
  EXPECT_EQ(mode("tp"), 0755u);
}

TEST_F(SocketFileTest, ADirectoryThatTookThePlaceOfOursStays) {
  auto bound = create(at("tp/w0.sock"));
  ASSERT_TRUE(bound.ok());
  std::filesystem::rename(at("tp"), at("moved"));
  std::filesystem::create_directory(at("tp"));
  ASSERT_EQ(::chmod(at("tp").c_str(), 01700), 0);  // another start's, for all that one can see
  EXPECT_TRUE(bound->file.remove(turn_).ok());
  EXPECT_TRUE(exists("tp"));
  EXPECT_FALSE(exists("moved/w0.sock"));
}

// The root is the user's, however it is written: as it was in the end, and closed to nobody.
TEST_F(SocketFileTest, TheRootStaysAsItIsHoweverItIsWritten) {
  std::filesystem::create_directory(at("r"));
  ASSERT_EQ(::chmod(at("r").c_str(), 0755), 0);
  std::filesystem::create_directory_symlink(at("r"), at("link"));
  for (const std::string root : {"r", "r/", "r//", "r/.", ".//r/./", "link", "link/", "link/."}) {
    auto bound = SocketFile::create(at(root) + "/tp/w0.sock", at(root), turn_);
    ASSERT_TRUE(bound.ok()) << root << ": " << bound.status().to_string();
    EXPECT_EQ(mode("r"), 0755u) << root;
    RawClient client;
    EXPECT_EQ(client.connect(at("r/tp/w0.sock")), 0) << root;
    EXPECT_TRUE(bound->file.remove(turn_).ok()) << root;
    EXPECT_EQ(mode("r"), 0755u) << root;
    EXPECT_TRUE(std::filesystem::is_empty(at("r"))) << root;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(at("link")));
}

TEST_F(SocketFileTest, WorksInTheRootThatItOpenedWhereverItsNameLeadsBy) {
  std::filesystem::create_directories(at("a"));
  std::filesystem::create_directories(at("b"));
  std::filesystem::create_directory_symlink(at("a"), at("link"));
  auto bound = SocketFile::create(at("link/tp/w0.sock"), at("link"), turn_);
  ASSERT_TRUE(bound.ok());
  std::filesystem::remove(at("link"));
  std::filesystem::create_directory_symlink(at("b"), at("link"));
  auto other = SocketFile::create(at("link/tp/w0.sock"), at("link"), turn_);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(bound->file.remove(turn_).ok());
  EXPECT_TRUE(std::filesystem::is_empty(at("a")));
  EXPECT_TRUE(exists("b/tp/w0.sock"));
}

TEST_F(SocketFileTest, TheLastToLeaveRemovesTheDirectoryWhoeverMadeIt) {
  auto first = create(at("tp/w0.sock"));
  auto second = create(at("tp/w1.sock"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->file.remove(turn_).ok());
  EXPECT_TRUE(exists("tp"));
  EXPECT_TRUE(second->file.remove(turn_).ok());
  EXPECT_TRUE(root_.empty());
}

TEST_F(SocketFileTest, WithoutADescriptorTheDirectoryThatItMadeGoesAgain) {
  const UniqueFd next(::dup(0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // Room for the root and the socket, and for nothing else.
  const rlimit few{static_cast<rlim_t>(next.get()) + 3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto refused = create(at("tp/w0.sock"));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.status().native(), EMFILE);
  EXPECT_TRUE(root_.empty());
}

TEST_F(SocketFileTest, AStopLeavesNothingOpen) {
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open();
  {
    auto bound = create(at("tp/pp1/w0.sock"));
    ASSERT_TRUE(bound.ok());
    EXPECT_TRUE(bound->file.remove(turn_).ok());
    EXPECT_EQ(open(), before + 1);  // the socket
  }
  EXPECT_EQ(open(), before);
}

TEST_F(SocketFileTest, LeavesASocketAloneThatIsNotOurs) {
  auto bound = create(at("tp/w0.sock"));
  ASSERT_TRUE(bound.ok());
  std::filesystem::remove(at("tp/w0.sock"));
  auto other = create(at("tp/w0.sock"));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(bound->file.remove(turn_).ok());
  RawClient client;
  EXPECT_EQ(client.connect(at("tp/w0.sock")), 0);
}

TEST_F(SocketFileTest, WithoutThatProtectionItWouldTakeTheOthers) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "points are compiled out";
  Moments moments;
  moments.skip("listener.cleanup.own_socket");
  auto bound = create(at("tp/w0.sock"));
  ASSERT_TRUE(bound.ok());
  std::filesystem::remove(at("tp/w0.sock"));
  auto other = create(at("tp/w0.sock"));
  EXPECT_TRUE(bound->file.remove(turn_).ok());
  EXPECT_FALSE(exists("tp/w0.sock"));
}

TEST_F(SocketFileTest, WhatIsGoneAlreadyIsFine) {
  auto bound = create(at("tp/w0.sock"));
  ASSERT_TRUE(bound.ok());
  std::filesystem::remove_all(at("tp"));
  EXPECT_TRUE(bound->file.remove(turn_).ok());
}

TEST_F(SocketFileTest, AnErrorIsReportedAndTheNextCallGoesOnFromThere) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "points are compiled out";
  Moments moments;
  auto bound = create(at("tp/w0.sock"));
  ASSERT_TRUE(bound.ok());
  moments.fail("listener.unlink", EACCES);
  const Status failed = bound->file.remove(turn_);
  EXPECT_EQ(failed.code(), Code::kSystem);
  EXPECT_EQ(failed.native(), EACCES);
  EXPECT_TRUE(exists("tp/w0.sock"));
  moments.fail("listener.unlink", 0);
  moments.fail("listener.rmdir", EBUSY);
  EXPECT_EQ(bound->file.remove(turn_).native(), EBUSY);
  EXPECT_FALSE(exists("tp/w0.sock"));
  moments.fail("listener.rmdir", 0);
  EXPECT_TRUE(bound->file.remove(turn_).ok());
  EXPECT_TRUE(root_.empty());
  EXPECT_EQ(moments.count("listener.unlink"), 2u);
}

// Workers of one engine come and go at the same time: a directory that one makes sure of may be
// removed by another before the socket is bound in it.
TEST_F(SocketFileTest, WorkersThatComeAndGoTogetherDoNotMeet) {
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 4; ++rank) {
    workers.emplace_back([this, rank] {
      for (int round = 0; round < 50; ++round) {
        auto bound = create(at("tp/w" + std::to_string(rank) + ".sock"));
        ASSERT_TRUE(bound.ok()) << bound.status().to_string();
        const Status removed = bound->file.remove(turn_);
        ASSERT_TRUE(removed.ok()) << removed.to_string();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(root_.empty());
}

// Whoever finds the same stale socket, only one of them gets the place.
TEST_F(SocketFileTest, OfSeveralForOnePlaceOneWins) {
  for (int round = 0; round < 20; ++round) {
    std::vector<Result<SocketFile::Bound>> bounds;
    for (int i = 0; i < 4; ++i) bounds.emplace_back(Status::error(Code::kInternal, "not run"));
    std::vector<std::thread> workers;
    for (auto& bound : bounds) {
      workers.emplace_back([this, &bound] { bound = create(at("tp/w0.sock")); });
    }
    for (std::thread& worker : workers) worker.join();
    int won = 0;
    for (const auto& bound : bounds) {
      won += bound.ok() ? 1 : 0;
      EXPECT_TRUE(bound.ok() || bound.status().code() == Code::kAlreadyExists);
    }
    EXPECT_EQ(won, 1);
    // The sockets close with `bounds`; the file stays and is stale in the next round.
  }
}

}  // namespace
}  // namespace kv
