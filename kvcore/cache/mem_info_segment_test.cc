// The record in shared memory: who makes, reads, limits and removes it, and what a process that is
// stopped or dead in the middle leaves.
#include "kvcore/cache/mem_info_segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kv {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MemInfoSegmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kvmiXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    path_ = *mem_info_path(root_, "ipc", 0);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<MemInfoSegment> make() {
    auto made = MemInfoSegment::make(path_, 1000, clock_, sink());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  MemInfo read() {
    auto reader = MemInfoReader::open(path_);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return reader.ok() ? reader->read().value_or(MemInfo()) : MemInfo();
  }
  LogSink sink() {
    return [this](Severity, std::string_view line) { log_.emplace_back(line); };
  }
  // Somebody writes a number at this byte.
  void write_at(off_t at, std::int64_t number) const {
    const UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), &number, sizeof number, at), ssize_t{sizeof number});
  }
  void cut(off_t bytes) const { ASSERT_EQ(::truncate(path_.c_str(), bytes), 0); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  // The three numbers that deployed tools know.
  std::array<std::int64_t, 3> deployed() const {
    std::array<std::int64_t, 3> numbers{};
    std::ifstream(path_, std::ios::binary)
        .read(reinterpret_cast<char*>(numbers.data()), sizeof numbers);
    return numbers;
  }
  void write_total(std::int64_t total) const {
    std::fstream(path_, std::ios::binary | std::ios::in | std::ios::out)
        .write(reinterpret_cast<const char*>(&total), sizeof total);
  }
  // Runs in a child that ends by SIGKILL afterwards; what it held is dropped by the kernel.
  template <typename Deed>
  static void in_a_killed_child(const Deed& deed) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      deed();
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  std::string root_, path_;
  ManualClock clock_;
  std::vector<std::string> log_;
};

constexpr std::uint64_t kMost = (std::uint64_t{1} << 24) - 1;  // of the revisions

TEST_F(MemInfoSegmentTest, LiesWhereDeployedToolsLook) {
  EXPECT_EQ(*mem_info_path("/dev/shm", "a-b_1", 0), "/dev/shm/a-b_1");
  EXPECT_EQ(*mem_info_path("/dev/shm", "a", 3), "/dev/shm/a_g3");
  for (const char* name : {"", "a/b", "a b"}) {
    EXPECT_EQ(mem_info_path("/dev/shm", name, 0).status().code(), Code::kInvalidArgument) << name;
  }
  EXPECT_FALSE(mem_info_path("", "a", 0).ok());
  EXPECT_FALSE(mem_info_path("/dev/shm", "a", -1).ok());
}

TEST_F(MemInfoSegmentTest, IsReadAsItWasPublished) {
  const auto segment = make();
  EXPECT_EQ(read(), (MemInfo{1000, 0, 0, 0, segment->generation()}));
  segment->publish(900, 300, 20, 7);
  EXPECT_EQ(read(), (MemInfo{900, 300, 20, 7, segment->generation()}));
  EXPECT_EQ(deployed(), (std::array<std::int64_t, 3>{900, 300, 20}));
}

TEST_F(MemInfoSegmentTest, GoesWithItsMaker) {
  make();
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_EQ(MemInfoReader::open(path_).status().code(), Code::kNotFound);
}

TEST_F(MemInfoSegmentTest, AnotherRecordOfTheSameNameIsLeftAlone) {
  auto first = make();
  ::unlink(path_.c_str());
  const auto second = make();
  first.reset();
  EXPECT_EQ(read().generation, second->generation());
}

TEST_F(MemInfoSegmentTest, AForkedChildThatDropsItsCopyTakesNothingAway) {
  auto segment = make();
  in_a_killed_child([&segment] { segment.reset(); });
  EXPECT_EQ(read().generation, segment->generation());
}

TEST_F(MemInfoSegmentTest, ALivingMakersNameIsTaken) {
  const auto segment = make();
  const auto second = MemInfoSegment::make(path_, 5, clock_, sink());
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_EQ(read().generation, segment->generation());
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(MemInfoSegmentTest, WhatADeadMakerLeftIsReplaced) {
  in_a_killed_child(
      [this] { (void)MemInfoSegment::make(path_, 77, clock_, sink()).value().release(); });
  EXPECT_EQ(read().total, 77);
  const auto segment = make();
  EXPECT_EQ(read().total, 1000);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(MemInfoSegmentTest, AForeignOrShortFileIsRefusedAndLeftAlone) {
  const auto refused = [this](const char* what) {
    const auto made = MemInfoSegment::make(path_, 1, clock_, sink());
    EXPECT_EQ(made.status().code(), Code::kProtocol) << what;
    EXPECT_THAT(made.status().to_string(), HasSubstr(path_));
    EXPECT_EQ(MemInfoReader::open(path_).status().code(), Code::kProtocol) << what;
    EXPECT_EQ(files().size(), 1u) << what;
    std::filesystem::remove_all(path_);
  };
  std::ofstream(path_) << "short";
  refused("short");
  make();
  std::ofstream(path_) << std::string(24, '\0');
  refused("as deployed engines make it");
  const auto size = [this] {
    const auto segment = make();
    return std::filesystem::file_size(path_);
  }();
  std::ofstream(path_) << std::string(size, 'x');
  refused("foreign");
  std::filesystem::create_directory(path_);
  const auto directory = MemInfoSegment::make(path_, 1, clock_, sink());
  EXPECT_FALSE(directory.ok());
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  refused("a pipe");
}

// ---- limits

TEST_F(MemInfoSegmentTest, ALimitIsTakenOnceWithItsRevision) {
  const auto segment = make();
  auto reader = MemInfoReader::open(path_);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(segment->take_wish(), std::nullopt);
  EXPECT_EQ(*reader->request_limit(40960), 1u);
  EXPECT_EQ(*reader->request_limit(8192), 2u);
  const auto wish = segment->take_wish();
  ASSERT_TRUE(wish.has_value());
  EXPECT_EQ(wish->bytes, 8192);
  EXPECT_EQ(wish->revision, 2u);
  EXPECT_EQ(segment->take_wish(), std::nullopt);
  segment->publish(8192, 0, 0, 9);
  EXPECT_EQ(*reader->request_limit(0), 10u);  // above the one in force
  segment->publish(0, 0, 0, (1u << 24) - 1);
  EXPECT_EQ(reader->request_limit(0).status().code(), Code::kFailedPrecondition);
  for (const std::int64_t bytes : {std::int64_t{-1}, std::int64_t{1} << 52}) {
    EXPECT_EQ(reader->request_limit(bytes).status().code(), Code::kInvalidArgument);
  }
}

TEST_F(MemInfoSegmentTest, ADeployedToolsTotalIsAWishAndIsNotLost) {
  const auto segment = make();
  write_total(500);
  segment->publish(1000, 10, 0, 0);  // does not overwrite what nobody has seen
  const auto wish = segment->take_wish();
  ASSERT_TRUE(wish.has_value());
  EXPECT_EQ(wish->bytes, 500);
  EXPECT_EQ(wish->revision, 0u);
  EXPECT_EQ(segment->take_wish(), std::nullopt);
  segment->publish(700, 10, 0, 1);  // what is in force so far
  EXPECT_EQ(deployed()[0], 700);
  EXPECT_EQ(segment->take_wish(), std::nullopt);
}

// ---- what others do to it

// Cut anywhere: the maker lives, takes nothing for a limit, and the record is whole again.
TEST_F(MemInfoSegmentTest, CutOffItIsWrittenAnew) {
  for (off_t bytes = 0; bytes < 184; bytes += 4) {
    const auto segment = make();
    auto reader = MemInfoReader::open(path_);
    ASSERT_TRUE(reader.ok());
    ASSERT_EQ(*reader->request_limit(8192), 1u);
    ASSERT_TRUE(segment->take_wish().has_value());
    segment->publish(1000, 0, 0, 1);
    segment->publish(900, 300, 20, 1);
    cut(bytes);
    EXPECT_EQ(MemInfoReader::open(path_).status().code(), Code::kProtocol) << bytes;
    if (bytes % 8 == 0) segment->publish(800, 200, 10, 1);  // before it looks: to the old end
    EXPECT_EQ(segment->take_wish(), std::nullopt) << bytes;
    EXPECT_EQ(segment->take_wish(), std::nullopt) << bytes;
    segment->publish(900, 400, 30, 1);
    EXPECT_EQ(read(), (MemInfo{900, 400, 30, 1, segment->generation()})) << bytes;
    EXPECT_EQ(deployed(), (std::array<std::int64_t, 3>{900, 400, 30})) << bytes;
    EXPECT_EQ(*reader->request_limit(4096), 2u) << bytes;
    EXPECT_TRUE(segment->take_wish().has_value());
  }
  EXPECT_EQ(log_.size(), 29u);  // but for what lay behind the head and was written again
}

TEST_F(MemInfoSegmentTest, SaysOnceThatItWasCut) {
  const auto segment = make();
  cut(0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(segment->take_wish(), std::nullopt);
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("somebody has cut it off"));
  EXPECT_THAT(log_[0], HasSubstr("written anew"));
  write_at(24, 0);  // another magic number
  EXPECT_EQ(segment->take_wish(), std::nullopt);
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_THAT(log_[1], HasSubstr("somebody has overwritten it"));
}

TEST_F(MemInfoSegmentTest, CutAgainAndAgainItFillsNoLog) {
  {
    const auto segment = make();
    for (int i = 0; i < 1000; ++i) {
      cut(i % 184);
      EXPECT_EQ(segment->take_wish(), std::nullopt);
    }
  }
  EXPECT_EQ(log_.size(), std::size_t{PeerLog::kLines + 1});
}

TEST_F(MemInfoSegmentTest, WhatCannotBeALimitIsNone) {
  const auto segment = make();
  write_total(-5);
  EXPECT_EQ(segment->take_wish(), std::nullopt);
  segment->publish(1000, 0, 0, 0);
  EXPECT_EQ(deployed()[0], 1000);
  write_at(40, 17);  // units without a revision
  EXPECT_EQ(segment->take_wish(), std::nullopt);
  EXPECT_EQ(segment->take_wish(), std::nullopt);
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_THAT(log_[0], HasSubstr("a total of -5 bytes, expected 0 or more"));
  EXPECT_THAT(log_[1], HasSubstr("no revision"));
}

TEST_F(MemInfoSegmentTest, AReaderRefusesWhatCannotBe) {
  const auto segment = make();
  auto reader = MemInfoReader::open(path_);
  ASSERT_TRUE(reader.ok());
  segment->publish(10, -1, 0, 0);
  EXPECT_EQ(reader->read().status().code(), Code::kProtocol);
  EXPECT_THAT(reader->read().status().to_string(), HasSubstr("its used bytes are -1"));
  segment->publish(10, 0, 0, ~std::uint64_t{0});
  EXPECT_EQ(reader->request_limit(0).status().code(), Code::kFailedPrecondition);
  segment->publish(10, 0, 0, kMost);
  EXPECT_EQ(reader->request_limit(0).status().code(), Code::kFailedPrecondition);
  write_at(40, -1);  // the newest of all limits that were asked for
  segment->publish(10, 0, 0, 0);
  EXPECT_EQ(reader->request_limit(0).status().code(), Code::kFailedPrecondition);
  write_at(48, -1);  // so many sets were published
  EXPECT_TRUE(reader->read().ok());
  cut(60);
  EXPECT_EQ(reader->read().status().code(), Code::kProtocol);
}

// Deployed tools lock the file, read, and write: neither side loses what the other wrote.
TEST_F(MemInfoSegmentTest, AToolsLockKeepsTheTotalFromBeingOverwritten) {
  const auto segment = make();
  auto tool =
      SharedFile::open(path_, std::filesystem::file_size(path_), SharedFile::Owner::kAnybody);
  ASSERT_TRUE(tool.ok() && tool->try_lock_whole());
  segment->publish(700, 10, 0, 0);
  EXPECT_EQ(deployed(), (std::array<std::int64_t, 3>{1000, 10, 0}));
  EXPECT_EQ(read().total, 700);
  auto reader = MemInfoReader::open(path_);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->request_limit(0).status().code(), Code::kUnavailable);
  tool->unlock_whole();
  segment->publish(700, 10, 0, 0);
  EXPECT_EQ(deployed()[0], 700);
  EXPECT_EQ(segment->take_wish(), std::nullopt);
}

TEST_F(MemInfoSegmentTest, AnotherUsersRecordIsRefusedAndLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  in_a_killed_child(
      [this] { (void)MemInfoSegment::make(path_, 77, clock_, {}).value().release(); });
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  const auto made = MemInfoSegment::make(path_, 1, clock_, sink());
  EXPECT_EQ(made.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(made.status().to_string(), HasSubstr("it belongs to user 65534"));
  EXPECT_EQ(read().total, 77);
}

// ---- in the middle

// Whatever instruction of publish() a maker stops at, there is a whole set to read.
TEST_F(MemInfoSegmentTest, ReadersSeeOnlyWholeSetsWhileTheMakerPublishes) {
  const auto segment = make();
  std::atomic<bool> stop{false};
  std::thread maker([&] {
    for (std::int64_t i = 1; !stop.load(); ++i) {
      segment->publish(i, i, i, static_cast<std::uint64_t>(i));
    }
  });
  auto reader = MemInfoReader::open(path_);
  ASSERT_TRUE(reader.ok());
  int whole = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto info = reader->read();
    if (!info.ok()) continue;  // too fast: said, not guessed
    ++whole;
    EXPECT_TRUE(info->total == 1000 || info->total == info->used);
    EXPECT_EQ(info->used, info->ready);
    EXPECT_EQ(info->used, static_cast<std::int64_t>(info->revision));
  }
  stop = true;
  maker.join();
  EXPECT_GT(whole, 0);
}

}  // namespace
}  // namespace kv
