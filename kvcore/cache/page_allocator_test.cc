// Whose a page is, while batches fail, callers wait and the limit moves.
#include "kvcore/cache/page_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fakes/doubles/test_hooks.h"

namespace kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Pages = std::vector<std::int64_t>;

// Pages as flags. A batch fails as `next` says; a batch can be parked inside.
class ScriptedPages final : public PageBackend {
 public:
  std::function<Status(const char* what, const Pages&)> next;
  std::function<PageMap(std::int64_t page, bool map)> ended;  // for a batch that fails

  Done map(const Pages& pages) override { return act("map", pages, true); }
  Done unmap(const Pages& pages) override { return act("unmap", pages, false); }
  bool needs_idle() const override { return idle; }
  bool idle = false;

  void park() {
    const std::lock_guard lock(mutex_);
    parked_ = true;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    parked_ = false;
    moved_.notify_all();
  }
  void wait_inside(int n = 1) {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [this, n] { return inside_ >= n; });
  }
  std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  Done act(const char* what, const Pages& pages, bool map) {
    std::unique_lock lock(mutex_);
    calls_.push_back(what + std::string(" ") + std::to_string(pages.size()));
    ++inside_;
    moved_.notify_all();
    moved_.wait(lock, [this] { return !parked_; });
    --inside_;
    const Status status = next ? next(what, pages) : Status();
    if (status.ok()) return {};
    Done done{status, {}};
    for (const std::int64_t page : pages) {
      done.states.push_back(ended ? ended(page, map) : map ? PageMap::kUnmapped : PageMap::kMapped);
    }
    return done;
  }

  mutable std::mutex mutex_;
  std::condition_variable moved_;
  bool parked_ = false;
  int inside_ = 0;
  std::vector<std::string> calls_;
};

class Record final : public PageRecord {
 public:
  std::int64_t total = -1, used = -1, ready = -1;
  std::optional<Wish> wish;
  void publish(std::int64_t t, std::int64_t u, std::int64_t r, std::uint64_t) override {
    total = t;
    used = u;
    ready = r;
  }
  std::optional<Wish> take_wish() override { return std::exchange(wish, std::nullopt); }
};

class PageAllocatorTest : public ::testing::Test {
 protected:
  void make(std::int64_t pages, std::int64_t low = 0, std::int64_t high = 0, bool keeper = false) {
    options_.pages = pages;
    options_.page_bytes = 100;
    options_.low = low;
    options_.high = high;
    options_.keeper = keeper;
    options_.record = &record_;
    auto made = PageAllocator::make(options_, backend_, clock_, {});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    pages_ = std::move(*made);
  }
  Pages take(std::int64_t n) {
    auto taken = pages_->take(n);
    EXPECT_TRUE(taken.ok()) << taken.status().to_string();
    EXPECT_TRUE(taken.ok() && *taken) << "a miss";
    return taken.ok() && *taken ? **taken : Pages();
  }
  bool misses(std::int64_t n) {
    const auto taken = pages_->take(n);
    return taken.ok() && !*taken;
  }
  void expect(std::int64_t free, std::int64_t ready, std::int64_t used,
              std::int64_t quarantined = 0, std::int64_t withheld = 0) {
    const PageCounts counts = pages_->counts();
    EXPECT_EQ(counts.free, free);
    EXPECT_EQ(counts.ready, ready);
    EXPECT_EQ(counts.used, used);
    EXPECT_EQ(counts.quarantined, quarantined);
    EXPECT_EQ(counts.withheld, withheld);
    EXPECT_EQ(counts.free + counts.ready + counts.used + counts.transit + counts.quarantined,
              counts.total);
    EXPECT_EQ(record_.total, counts.total * 100);
    EXPECT_EQ(record_.used, (counts.used + counts.transit + counts.quarantined) * 100);
    EXPECT_EQ(record_.ready, counts.ready * 100);
  }
  // Until the keeper has nothing to do.
  void until(const std::function<bool(const PageCounts&)>& there) {
    while (!there(pages_->counts())) std::this_thread::yield();
  }
  static Status driver() { return Status::error(Code::kDriver, "test", "", 999); }
  static Status no_memory() { return Status::error(Code::kOutOfMemory, "test", "", 2); }

  ScriptedPages backend_;
  Record record_;
  ManualClock clock_;
  PageOptions options_;
  std::unique_ptr<PageAllocator> pages_;
};

TEST_F(PageAllocatorTest, TakesTheLowestAndWhatIsReadyFirst) {
  make(6, 0, 2);
  EXPECT_THAT(take(3), ElementsAre(0, 1, 2));
  ASSERT_TRUE(pages_->give_back({1}).ok());
  expect(3, 1, 2);
  EXPECT_THAT(take(2), ElementsAre(1, 3));
  EXPECT_THAT(backend_.calls(), ElementsAre("map 3", "map 1"));
}

TEST_F(PageAllocatorTest, NoKeeperForPagesThatMayOnlyChangeWhenNobodyWorks) {
  PageOptions options;
  options.pages = 4;
  options.page_bytes = 1;
  backend_.idle = true;
  const auto refused = PageAllocator::make(options, backend_, clock_, nullptr);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().to_string(), HasSubstr("expected no keeper"));
  options.keeper = false;
  EXPECT_TRUE(PageAllocator::make(options, backend_, clock_, nullptr).ok());
}

TEST_F(PageAllocatorTest, AMissIsAValueAndChangesNothing) {
  make(4);
  take(3);
  EXPECT_TRUE(misses(2));
  expect(1, 0, 3);
  EXPECT_TRUE(take(0).empty());
  EXPECT_EQ(pages_->take(-1).status().code(), Code::kInvalidArgument);
}

TEST_F(PageAllocatorTest, MemoryThatIsGoneIsAMissAndTheReadyPagesAreStillThere) {
  make(4, 0, 4);
  ASSERT_TRUE(pages_->give_back(take(2)).ok());
  backend_.next = [](const char*, const Pages&) { return no_memory(); };
  EXPECT_TRUE(misses(3));
  expect(2, 2, 0);
  backend_.next = [](const char*, const Pages&) { return driver(); };
  EXPECT_EQ(pages_->take(3).status().native(), 999);
  expect(2, 2, 0);
}

TEST_F(PageAllocatorTest, APageThatCouldNotBeUndoneIsNeverGivenOutAgain) {
  make(4);
  backend_.next = [](const char*, const Pages&) { return driver(); };
  backend_.ended = [](std::int64_t page, bool) {
    return page == 1 ? PageMap::kQuarantined : PageMap::kUnmapped;
  };
  EXPECT_FALSE(pages_->take(3).ok());
  backend_.next = nullptr;
  expect(3, 0, 0, 1);
  EXPECT_THAT(take(3), ElementsAre(0, 2, 3));
  EXPECT_TRUE(misses(1));
}

TEST_F(PageAllocatorTest, GivingBackWhatIsNotInUseIsAnErrorThatNamesItAndDoesNothing) {
  make(4);
  take(2);
  const auto refused = [this](const Pages& pages, const char* page, const char* why) {
    const Status status = pages_->give_back(pages);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.object(), page);
    EXPECT_THAT(std::string(status.text()), HasSubstr(why));
    expect(2, 0, 2);
  };
  refused({0, 3}, "page 3", "not in use");
  refused({0, 1, 0}, "page 0", "twice");
  refused({0, 4}, "page 4", "0 to 3");
  refused({-1}, "page -1", "0 to 3");
}

TEST_F(PageAllocatorTest, AnUnmapThatFailsLeavesThePagesReadyAndCounted) {
  make(4, 0, 1);
  backend_.next = [](const char* what, const Pages&) {
    return std::string(what) == "unmap" ? driver() : Status();
  };
  EXPECT_EQ(pages_->give_back(take(3)).native(), 999);
  expect(1, 3, 0);
  EXPECT_EQ(pages_->trim().native(), 999);
  expect(1, 3, 0);
  backend_.next = nullptr;
  EXPECT_THAT(take(3), ElementsAre(0, 1, 2));  // no call was needed
  EXPECT_TRUE(pages_->give_back({0, 1, 2}).ok());
  expect(3, 1, 0);
  EXPECT_TRUE(pages_->trim().ok());
  expect(4, 0, 0);
}

TEST_F(PageAllocatorTest, AnUnmapThatFailsInPartIsBookedPageByPage) {
  make(3, 0, 3);
  ASSERT_TRUE(pages_->give_back(take(3)).ok());
  backend_.next = [](const char*, const Pages&) { return driver(); };
  backend_.ended = [](std::int64_t page, bool) { return static_cast<PageMap>(page); };
  EXPECT_FALSE(pages_->trim().ok());
  expect(1, 1, 0, 1);
}

TEST_F(PageAllocatorTest, OneCertainPageCanBeTaken) {
  make(3, 0, 3);
  EXPECT_TRUE(*pages_->take_page(1));
  EXPECT_FALSE(*pages_->take_page(1));
  ASSERT_TRUE(pages_->give_back({1}).ok());
  EXPECT_TRUE(*pages_->take_page(1));  // it was ready
  EXPECT_EQ(backend_.calls().size(), 1u);
  backend_.next = [](const char*, const Pages&) { return no_memory(); };
  EXPECT_FALSE(*pages_->take_page(2));
  backend_.next = [](const char*, const Pages&) { return driver(); };
  EXPECT_EQ(pages_->take_page(2).status().native(), 999);
  expect(2, 0, 1);
  EXPECT_EQ(pages_->take_page(3).status().code(), Code::kInvalidArgument);
  pages_->stop();
  EXPECT_EQ(pages_->take_page(0).status().code(), Code::kCancelled);
}

// ---- the limit

TEST_F(PageAllocatorTest, ALimitIsAppliedWhileInUseAsPagesComeBackAndTheFirstSizeWorksAgain) {
  make(6, 0, 6);
  const Pages mine = take(4);
  EXPECT_EQ(pages_->set_limit(3, 1), LimitResult::kDeferred);
  expect(0, 0, 4, 0, 2);
  EXPECT_TRUE(misses(1));
  EXPECT_TRUE(pages_->give_back({mine[0]}).ok());
  expect(0, 0, 3, 0, 3);  // it went at once, though 6 may be ready
  EXPECT_EQ(pages_->set_limit(3, 1), LimitResult::kApplied);
  EXPECT_EQ(pages_->set_limit(6, 2), LimitResult::kApplied);
  expect(3, 0, 3);
  EXPECT_EQ(take(3).size(), 3u);
}

TEST_F(PageAllocatorTest, TheNewestRevisionWins) {
  make(6);
  EXPECT_EQ(pages_->set_limit(4, 5), LimitResult::kApplied);
  EXPECT_EQ(pages_->set_limit(2, 4), LimitResult::kStale);
  EXPECT_EQ(pages_->set_limit(3, 5), LimitResult::kConflict);
  EXPECT_EQ(pages_->set_limit(4, 5), LimitResult::kApplied);
  EXPECT_EQ(pages_->counts().total, 4);
  EXPECT_EQ(pages_->limit_revision(), 5u);
  EXPECT_EQ(pages_->set_limit(100, 6), LimitResult::kApplied);  // all there are
  EXPECT_EQ(pages_->set_limit(100, 6), LimitResult::kApplied);
  EXPECT_EQ(pages_->counts().total, 6);
  EXPECT_EQ(pages_->set_limit(-1, 7), LimitResult::kApplied);
  EXPECT_EQ(pages_->counts().total, 0);
}

TEST_F(PageAllocatorTest, ADeferredLimitIsOvertakenByANewerOne) {
  make(4);
  const Pages mine = take(4);
  EXPECT_EQ(pages_->set_limit(1, 1), LimitResult::kDeferred);
  EXPECT_EQ(pages_->set_limit(3, 2), LimitResult::kDeferred);
  EXPECT_TRUE(pages_->give_back(mine).ok());
  expect(3, 0, 0, 0, 1);
}

TEST_F(PageAllocatorTest, ALimitFromTheRecordIsTakenOnceAndCountsAsTheNewest) {
  make(6);
  record_.wish = PageRecord::Wish{250, 0};
  take(1);
  EXPECT_EQ(pages_->counts().total, 2);
  EXPECT_EQ(pages_->limit_revision(), 1u);
  record_.wish = PageRecord::Wish{600, 0};
  pages_->take_wish();
  EXPECT_EQ(pages_->counts().total, 6);
  EXPECT_EQ(pages_->limit_revision(), 2u);
  pages_->take_wish();
  EXPECT_EQ(pages_->limit_revision(), 2u);
}

// ---- the keeper

TEST_F(PageAllocatorTest, TheKeeperMapsAheadBetweenTheMarks) {
  make(8, 2, 3, /*keeper=*/true);
  until([](const PageCounts& counts) { return counts.ready == 3 && counts.transit == 0; });
  EXPECT_THAT(take(1), ElementsAre(0));  // two are left: not below the mark
  EXPECT_EQ(pages_->counts().ready, 2);
  EXPECT_THAT(take(1), ElementsAre(1));  // one is left: filled up again
  until([](const PageCounts& counts) { return counts.ready == 3 && counts.transit == 0; });
  expect(3, 3, 2);
}

TEST_F(PageAllocatorTest, TheKeeperUnmapsWhatIsBeyondTheHighMark) {
  make(8, 0, 1, /*keeper=*/true);
  ASSERT_TRUE(pages_->give_back(take(5)).ok());
  until([](const PageCounts& counts) { return counts.free == 7; });
  expect(7, 1, 0);
}

TEST_F(PageAllocatorTest, TheKeeperDoesNotTryAgainBeforeSomebodyComesBy) {
  backend_.next = [](const char*, const Pages&) { return driver(); };
  make(8, 2, 3, /*keeper=*/true);
  until([this](const PageCounts& counts) {
    return counts.transit == 0 && backend_.calls().size() == 1;
  });
  EXPECT_FALSE(pages_->take(1).ok());
  expect(8, 0, 0);
  EXPECT_THAT(backend_.calls(), ElementsAre("map 1", "map 1"));
  backend_.next = nullptr;
  EXPECT_EQ(take(1).size(), 1u);
  until([](const PageCounts& counts) { return counts.ready == 3 && counts.transit == 0; });
}

// The keeper is parked in the driver with the only page, and a take() waits for it.
class WaitingTakeTest : public PageAllocatorTest {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "needs the points";
    hooks_.on_reached([this](const TestHooks::Seen& seen) {
      if (seen.name == "clock.wait" && seen.text == "pages.take") waiting_.set_value();
    });
    backend_.park();
    make(1, 1, 1, /*keeper=*/true);
    backend_.wait_inside();
    taken_ = std::async(std::launch::async, [this] { return pages_->take(1); });
    waiting_.get_future().wait();
  }
  void TearDown() override {
    backend_.let_go();
    pages_.reset();
  }
  TestHooks hooks_;
  std::promise<void> waiting_;
  std::future<Result<std::optional<Pages>>> taken_;
};

TEST_F(WaitingTakeTest, GetsThePageWhenItIsThere) {
  backend_.let_go();
  const auto got = taken_.get();
  ASSERT_TRUE(got.ok() && *got);
  expect(0, 0, 1);
}

TEST_F(WaitingTakeTest, MissesWhenThePageDoesNotCome) {
  backend_.next = [](const char*, const Pages&) { return no_memory(); };
  backend_.let_go();
  const auto got = taken_.get();
  // The page is free again, so it was tried once more, for this caller.
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE(*got);
}

TEST_F(WaitingTakeTest, EndsAtItsLimit) {
  clock_.set(Time(options_.wait_limit));
  EXPECT_EQ(taken_.get().status().code(), Code::kDeadline);
}

TEST_F(WaitingTakeTest, EndsWithAnErrorWhenStopBegins) {
  auto stopped = std::async(std::launch::async, [this] { pages_->stop(); });
  EXPECT_EQ(taken_.get().status().code(), Code::kCancelled);
  backend_.let_go();  // stop() waits for the driver call that the keeper is in
  stopped.get();
  EXPECT_EQ(pages_->take(0).status().code(), Code::kCancelled);
  EXPECT_EQ(pages_->counts().ready, 1);
  EXPECT_TRUE(pages_->trim().ok());
}

TEST_F(WaitingTakeTest, OthersComeThroughMeanwhile) {
  EXPECT_EQ(pages_->counts().transit, 1);
  EXPECT_TRUE(pages_->trim().ok());
  EXPECT_EQ(pages_->set_limit(0, 1), LimitResult::kDeferred);
  backend_.let_go();
  const auto got = taken_.get();
  EXPECT_TRUE(got.ok() && !*got);  // the limit took the page
}

// ---- the protections, left out

TEST_F(PageAllocatorTest, WithoutThePutBackPagesOfAFailedBatchAreLost) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "needs the points";
  TestHooks hooks;
  hooks.skip("pages.take.put_back");
  make(3);
  backend_.next = [](const char*, const Pages&) { return no_memory(); };
  EXPECT_TRUE(misses(2));
  EXPECT_EQ(pages_->counts().transit, 2);
  EXPECT_EQ(pages_->counts().free, 1);
}

TEST_F(PageAllocatorTest, WithoutTheRevisionCheckAnOldLimitComesIntoForce) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "needs the points";
  TestHooks hooks;
  hooks.skip("pages.limit.newest");
  make(6);
  EXPECT_EQ(pages_->set_limit(4, 5), LimitResult::kApplied);
  EXPECT_EQ(pages_->set_limit(2, 4), LimitResult::kApplied);
  EXPECT_EQ(pages_->counts().total, 2);
}

TEST_F(WaitingTakeTest, WithoutTheWakeUpItOutlivesTheBeginOfAStop) {
  hooks_.skip("pages.stop.wake");
  auto stopped = std::async(std::launch::async, [this] { pages_->stop(); });
  while (hooks_.count("pages.stop.wake") == 0) std::this_thread::yield();
  EXPECT_EQ(hooks_.count("pages.stop.wake.done"), 0u);
  clock_.set(Time(options_.wait_limit));  // the limit ends it, with what it finds then
  EXPECT_EQ(taken_.get().status().code(), Code::kCancelled);
  backend_.let_go();
  stopped.get();
}

TEST_F(PageAllocatorTest, StoppingIsFineFromAnyStateAndTwice) {
  make(4, 1, 2, /*keeper=*/true);
  pages_->stop();
  pages_->stop();
  pages_.reset();
  make(4, 1, 2, /*keeper=*/true);
  pages_.reset();
  make(4);
  pages_->stop();
}

TEST_F(PageAllocatorTest, AStopWithALimitSaysThatSomebodyIsStillInside) {
  backend_.park();
  make(4);
  auto taken = std::async(std::launch::async, [this] { return pages_->take(1); });
  backend_.wait_inside();
  EXPECT_FALSE(pages_->stop(Nanos(0)));
  EXPECT_EQ(pages_->take(1).status().code(), Code::kCancelled);
  backend_.let_go();
  EXPECT_TRUE(taken.get().ok());  // it was inside before
  EXPECT_TRUE(pages_->stop(Nanos(0)));
  expect(3, 0, 1);
}

TEST_F(PageAllocatorTest, WhatComesBackAfterTheStopStaysMappedUntilItIsTrimmed) {
  make(2);
  const Pages pages = take(2);
  pages_->stop();
  EXPECT_TRUE(pages_->give_back(pages).ok());
  EXPECT_THAT(backend_.calls(), ElementsAre("map 2"));
  EXPECT_TRUE(pages_->trim().ok());
  expect(2, 0, 0);
}

TEST(PageOptionsTest, SaysWhatIsWrong) {
  const auto refused = [](PageOptions options, const char* field) {
    const Status status = options.validate();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(status.object()), HasSubstr(field));
  };
  PageOptions good;
  good.pages = 1;
  good.page_bytes = 1;
  EXPECT_TRUE(good.validate().ok());
  const auto with = [&good](auto member, auto value) {
    PageOptions changed = good;
    changed.*member = value;
    return changed;
  };
  refused(with(&PageOptions::pages, 0), "pages 0");
  refused(with(&PageOptions::page_bytes, 0), "page_bytes 0");
  refused(with(&PageOptions::low, -1), "low -1");
  refused(with(&PageOptions::low, 1), "high 0");
  refused(with(&PageOptions::wait_limit, Nanos(-1)), "wait_limit -1");
  good.pages = 2;
  refused(with(&PageOptions::page_bytes, std::numeric_limits<std::int64_t>::max()), "page_bytes 9");
}

}  // namespace
}  // namespace kv
