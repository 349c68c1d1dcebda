// Several engines on one budget: never above it, nothing lost by death, stalled by nobody.
#include "kvcore/cache/card_budget.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/doubles/test_hooks.h"

namespace kv {
namespace {

using ::testing::HasSubstr;

class CardBudgetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kvbuXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    path_ = root_ + "/budget";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::unique_ptr<CardBudget> join(std::int64_t limit = 100) {
    auto joined = CardBudget::join(path_, limit, clock_, sink());
    EXPECT_TRUE(joined.ok()) << joined.status().to_string();
    return joined.ok() ? std::move(*joined) : nullptr;
  }
  LogSink sink() {
    return [this](Severity, std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_.emplace_back(line);
    };
  }
  // Somebody writes into a slot, as if it were a claim, or not so well.
  void write_slot(int slot, std::int64_t bytes, std::int64_t complement) const {
    const std::int64_t words[] = {bytes, complement};
    const UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), words, sizeof words, 16 + 16 * slot), ssize_t{sizeof words});
  }
  void write_slot(int slot, std::int64_t bytes) const { write_slot(slot, bytes, ~bytes); }
  void cut(off_t bytes) const { ASSERT_EQ(::truncate(path_.c_str(), bytes), 0); }
  std::string root_, path_;
  ManualClock clock_;
  std::mutex mutex_;
  std::vector<std::string> log_;
};

constexpr std::int64_t kHuge = std::int64_t{1} << 62;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

TEST_F(CardBudgetTest, IsOneForAllWhoJoin) {
  const auto one = join(), two = join();
  EXPECT_TRUE(one->claim(60).ok());
  EXPECT_EQ(two->claim(41).code(), Code::kOutOfMemory);
  EXPECT_TRUE(two->claim(40).ok());
  EXPECT_EQ(*one->claimed(), 100);
  EXPECT_EQ(two->own(), 40);
  EXPECT_TRUE(one->give_back(1).ok());
  EXPECT_TRUE(two->claim(1).ok());
  EXPECT_EQ(two->claim(1).code(), Code::kOutOfMemory);
}

TEST_F(CardBudgetTest, WhatAnEngineHeldGoesBackWhenItLeaves) {
  auto one = join();
  const auto two = join();
  EXPECT_TRUE(one->claim(100).ok());
  one.reset();
  EXPECT_TRUE(two->claim(100).ok());
}

TEST_F(CardBudgetTest, AForkedChildThatDropsItsCopyGivesNothingBack) {
  auto mine = join();
  ASSERT_TRUE(mine->claim(70).ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    mine.reset();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(mine->own(), 70);
}

TEST_F(CardBudgetTest, WithoutTheReclaimADeadEnginesPartStaysTaken) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "needs the points";
  const auto mine = join();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto theirs = CardBudget::join(path_, 100, clock_, sink());
    if (!theirs.ok() || !(*theirs)->claim(90).ok()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  {
    TestHooks hooks;
    hooks.skip("budget.reclaim_dead");
    EXPECT_EQ(mine->claim(50).code(), Code::kOutOfMemory);
  }
  EXPECT_TRUE(mine->claim(50).ok());
}

TEST_F(CardBudgetTest, WhatAKilledEngineHeldGoesBackToWhoNeedsIt) {
  const auto mine = join();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Its descriptors are copies of this process's, so it joins anew, with its own.
    const auto theirs = CardBudget::join(path_, 100, clock_, sink());
    if (!theirs.ok() || !(*theirs)->claim(90).ok()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(*mine->claimed(), 90);
  EXPECT_TRUE(mine->claim(50).ok());
  EXPECT_EQ(*mine->claimed(), 50);
}

TEST_F(CardBudgetTest, TwoThatCheckTogetherNeverBothGetTheLast) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "needs the points";
  const auto one = join(), two = join();
  TestHooks hooks;
  bool inside = false;
  hooks.on_reached([&](const TestHooks::Seen& seen) {
    // The other one comes at the worst moment: after the claim, before the look at the sum.
    if (seen.name != "budget.claim" || std::exchange(inside, true)) return;
    EXPECT_EQ(two->claim(60).code(), Code::kOutOfMemory);
  });
  EXPECT_TRUE(one->claim(60).ok());
  EXPECT_EQ(*one->claimed(), 60);
}

TEST_F(CardBudgetTest, TheSumStaysWithinTheLimitUnderLoad) {
  constexpr int kEngines = 4;
  std::vector<std::unique_ptr<CardBudget>> engines;
  for (int i = 0; i < kEngines; ++i) engines.push_back(join());
  std::atomic<std::int64_t> granted{0}, worst{0}, won{0};
  std::vector<std::thread> threads;
  for (const auto& engine : engines) {
    threads.emplace_back([&, budget = engine.get()] {
      for (int i = 0; i < 2000; ++i) {
        if (!budget->claim(40).ok()) continue;
        const std::int64_t now = granted.fetch_add(40) + 40;
        for (std::int64_t seen = worst.load();
             now > seen && !worst.compare_exchange_weak(seen, now);) {
        }
        won.fetch_add(1);
        granted.fetch_sub(40);
        EXPECT_TRUE(budget->give_back(40).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(worst.load(), 80);
  EXPECT_GT(won.load(), 0);
  EXPECT_EQ(*engines[0]->claimed(), 0);
}

TEST_F(CardBudgetTest, AnotherLimitAForeignFileAndTooManyEnginesAreRefused) {
  const auto one = join(100);
  const auto other = CardBudget::join(path_, 101, clock_, sink());
  EXPECT_EQ(other.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(other.status().to_string(), HasSubstr("its limit is 100 bytes"));
  EXPECT_EQ(CardBudget::join(path_, -1, clock_, sink()).status().code(), Code::kInvalidArgument);
  std::vector<std::unique_ptr<CardBudget>> all;
  for (int i = 1; i < CardBudget::kSlots; ++i) all.push_back(join());
  EXPECT_EQ(CardBudget::join(path_, 100, clock_, sink()).status().code(), Code::kUnavailable);
  all.pop_back();
  EXPECT_TRUE(CardBudget::join(path_, 100, clock_, sink()).ok());
  std::ofstream(root_ + "/foreign") << "x";
  EXPECT_EQ(CardBudget::join(root_ + "/foreign", 1, clock_, sink()).status().code(),
            Code::kProtocol);
}

// ---- what others do to it

TEST_F(CardBudgetTest, WhatCannotBeClaimedOrGivenBackIsRefused) {
  const auto mine = join();
  EXPECT_EQ(mine->claim(-5).code(), Code::kInvalidArgument);
  ASSERT_TRUE(mine->claim(60).ok());
  EXPECT_EQ(mine->claim(kAll).code(), Code::kOutOfMemory);
  for (const std::int64_t bytes : {std::int64_t{-1}, std::int64_t{61}, kAll}) {
    EXPECT_EQ(mine->give_back(bytes).code(), Code::kInvalidArgument) << bytes;
  }
  EXPECT_EQ(mine->own(), 60);
  EXPECT_EQ(*mine->claimed(), 60);
  // So large a limit that two parts of it are beyond all numbers.
  auto large = CardBudget::join(root_ + "/large", kAll, clock_, sink());
  ASSERT_TRUE(large.ok() && (*large)->claim(kAll).ok());
  EXPECT_EQ((*large)->claim(kAll).code(), Code::kOutOfMemory);
}

TEST_F(CardBudgetTest, AForkedChildHasNoPart) {
  const auto mine = join();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(mine->claim(1).code() == Code::kFailedPrecondition ? 0 : 1);
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
}

TEST_F(CardBudgetTest, HugeSlotsOfTheDeadGoBack) {
  const auto mine = join();
  write_slot(5, kHuge);
  write_slot(6, kHuge);
  EXPECT_EQ(*mine->claimed(), kAll);
  EXPECT_TRUE(mine->claim(100).ok());
  EXPECT_EQ(*mine->claimed(), 100);
}

TEST_F(CardBudgetTest, HugeSlotsOfTheLivingLeaveNoRoomUntilTheyAreWrittenAnew) {
  const auto mine = join(), second = join(), third = join();
  write_slot(1, kHuge);
  write_slot(2, kHuge);
  EXPECT_EQ(mine->claim(1).code(), Code::kOutOfMemory);
  EXPECT_EQ(second->claim(1).code(), Code::kOutOfMemory);
  EXPECT_TRUE(third->claim(1).ok());
  EXPECT_EQ(*mine->claimed(), 1);
}

TEST_F(CardBudgetTest, ASlotThatCannotBeGivesNobodyRoom) {
  const auto mine = join(), other = join();
  for (const bool negative : {true, false}) {
    write_slot(1, negative ? -kHuge : 0, negative ? kHuge - 1 : 0);
    const Status refused = mine->claim(100);
    EXPECT_EQ(refused.code(), Code::kProtocol);
    EXPECT_THAT(refused.to_string(), HasSubstr("somebody has overwritten slot 1"));
    EXPECT_EQ(mine->own(), 0);
    EXPECT_TRUE(other->claim(1).ok());  // it writes its own anew
    EXPECT_TRUE(mine->claim(99).ok());
    EXPECT_TRUE(mine->give_back(99).ok());
    EXPECT_TRUE(other->give_back(1).ok());
    write_slot(7, negative ? -kHuge : 0, negative ? kHuge - 1 : 0);  // of nobody
    EXPECT_TRUE(mine->claim(100).ok());
    EXPECT_TRUE(mine->give_back(100).ok());
  }
}

// Cut anywhere: nobody dies, nobody has more than there is, and in the end all is whole again.
TEST_F(CardBudgetTest, CutOffItIsMendedByThoseWhoUseIt) {
  for (off_t bytes = 0; bytes < 1040; bytes += 8) {
    const auto mine = join(), other = join();
    ASSERT_TRUE(mine->claim(10).ok() && other->claim(60).ok());
    cut(bytes);
    const Status first = mine->claim(40);  // with the other's 60 it is too much
    EXPECT_NE(first.code(), Code::kOk) << bytes;
    EXPECT_EQ(mine->own(), 10) << bytes;
    EXPECT_TRUE(other->claim(20).ok()) << bytes;
    EXPECT_EQ(*mine->claimed(), 90) << bytes;
    EXPECT_TRUE(mine->claim(10).ok()) << bytes;
    EXPECT_EQ(other->claim(1).code(), Code::kOutOfMemory) << bytes;
    EXPECT_TRUE(CardBudget::join(path_, 100, clock_, sink()).ok()) << bytes;
  }
  EXPECT_THAT(log_.front(), HasSubstr("somebody has cut it off"));
  EXPECT_THAT(log_.front(), HasSubstr("mended"));
}

TEST_F(CardBudgetTest, ALimitThatSomebodyWritesIsNotTaken) {
  const auto mine = join();
  const UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::pwrite(fd.get(), &kHuge, sizeof kHuge, 8), ssize_t{sizeof kHuge});
  EXPECT_EQ(mine->claim(101).code(), Code::kOutOfMemory);
  EXPECT_TRUE(mine->claim(100).ok());
  EXPECT_TRUE(CardBudget::join(path_, 100, clock_, sink()).ok());
}

TEST_F(CardBudgetTest, AnotherUsersBudgetIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  join();
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  const auto joined = CardBudget::join(path_, 100, clock_, sink());
  EXPECT_EQ(joined.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(joined.status().to_string(), HasSubstr("it belongs to user 65534"));
}

// ---- pages

class FlagPages final : public PageBackend {
 public:
  Done next;
  int maps = 0;
  Done map(const std::vector<std::int64_t>&) override {
    ++maps;
    return next;
  }
  Done unmap(const std::vector<std::int64_t>&) override { return next; }
};

TEST_F(CardBudgetTest, PagesAreClaimedBeforeTheyAreMappedAndGivenBackAsTheyEnd) {
  const auto budget = join(100);
  FlagPages inner;
  BudgetedPages pages(inner, *budget, 30);
  EXPECT_TRUE(pages.map({0, 1}).status.ok());
  EXPECT_EQ(budget->own(), 60);
  const auto refused = pages.map({2, 3});
  EXPECT_EQ(refused.status.code(), Code::kOutOfMemory);
  EXPECT_EQ(refused.states.size(), 2u);
  EXPECT_EQ(inner.maps, 1);  // nobody asked the card
  inner.next = {Status::error(Code::kDriver, "x"), {PageMap::kQuarantined}};
  EXPECT_FALSE(pages.map({2}).status.ok());
  EXPECT_EQ(budget->own(), 90);  // a page that is lost still costs
  inner.next = {Status::error(Code::kDriver, "x"), {PageMap::kUnmapped, PageMap::kMapped}};
  EXPECT_FALSE(pages.unmap({0, 1}).status.ok());
  EXPECT_EQ(budget->own(), 60);
  inner.next = {};
  EXPECT_TRUE(pages.unmap({1}).status.ok());
  EXPECT_EQ(budget->own(), 30);
}

}  // namespace
}  // namespace kv
