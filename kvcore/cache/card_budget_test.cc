// Several engines on one budget: never above it, nothing lost by death, stalled by nobody.
#include "kvcore/cache/card_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
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
    auto joined = CardBudget::join(path_, limit);
    EXPECT_TRUE(joined.ok()) << joined.status().to_string();
    return joined.ok() ? std::move(*joined) : nullptr;
  }
  std::string root_, path_;
};

TEST_F(CardBudgetTest, IsOneForAllWhoJoin) {
  const auto one = join(), two = join();
  EXPECT_TRUE(one->claim(60));
  EXPECT_FALSE(two->claim(41));
  EXPECT_TRUE(two->claim(40));
  EXPECT_EQ(one->claimed(), 100);
  EXPECT_EQ(two->own(), 40);
  one->give_back(1);
  EXPECT_TRUE(two->claim(1));
  EXPECT_FALSE(two->claim(1));
}

TEST_F(CardBudgetTest, WhatAnEngineHeldGoesBackWhenItLeaves) {
  auto one = join();
  const auto two = join();
  EXPECT_TRUE(one->claim(100));
  one.reset();
  EXPECT_TRUE(two->claim(100));
}

TEST_F(CardBudgetTest, AForkedChildThatDropsItsCopyGivesNothingBack) {
  auto mine = join();
  ASSERT_TRUE(mine->claim(70));
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
    const auto theirs = CardBudget::join(path_, 100);
    if (!theirs.ok() || !(*theirs)->claim(90)) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  {
    TestHooks hooks;
    hooks.skip("budget.reclaim_dead");
    EXPECT_FALSE(mine->claim(50));
  }
  EXPECT_TRUE(mine->claim(50));
}

TEST_F(CardBudgetTest, WhatAKilledEngineHeldGoesBackToWhoNeedsIt) {
  const auto mine = join();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Its descriptors are copies of this process's, so it joins anew, with its own.
    const auto theirs = CardBudget::join(path_, 100);
    if (!theirs.ok() || !(*theirs)->claim(90)) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(mine->claimed(), 90);
  EXPECT_TRUE(mine->claim(50));
  EXPECT_EQ(mine->claimed(), 50);
}

TEST_F(CardBudgetTest, TwoThatCheckTogetherNeverBothGetTheLast) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "needs the points";
  const auto one = join(), two = join();
  TestHooks hooks;
  bool inside = false;
  hooks.on_reached([&](const TestHooks::Seen& seen) {
    // The other one comes at the worst moment: after the claim, before the look at the sum.
    if (seen.name != "budget.claim" || std::exchange(inside, true)) return;
    EXPECT_FALSE(two->claim(60));
  });
  EXPECT_TRUE(one->claim(60));
  EXPECT_EQ(one->claimed(), 60);
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
        if (!budget->claim(40)) continue;
        const std::int64_t now = granted.fetch_add(40) + 40;
        for (std::int64_t seen = worst.load();
             now > seen && !worst.compare_exchange_weak(seen, now);) {
        }
        won.fetch_add(1);
        granted.fetch_sub(40);
        budget->give_back(40);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(worst.load(), 80);
  EXPECT_GT(won.load(), 0);
  EXPECT_EQ(engines[0]->claimed(), 0);
}

TEST_F(CardBudgetTest, AnotherLimitAForeignFileAndTooManyEnginesAreRefused) {
  const auto one = join(100);
  const auto other = CardBudget::join(path_, 101);
  EXPECT_EQ(other.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(other.status().to_string(), HasSubstr("its limit is 100 bytes"));
  EXPECT_EQ(CardBudget::join(path_, -1).status().code(), Code::kInvalidArgument);
  std::vector<std::unique_ptr<CardBudget>> all;
  for (int i = 1; i < CardBudget::kSlots; ++i) all.push_back(join());
  EXPECT_EQ(CardBudget::join(path_, 100).status().code(), Code::kUnavailable);
  all.pop_back();
  EXPECT_TRUE(CardBudget::join(path_, 100).ok());
  std::ofstream(root_ + "/foreign") << "x";
  EXPECT_EQ(CardBudget::join(root_ + "/foreign", 1).status().code(), Code::kProtocol);
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
