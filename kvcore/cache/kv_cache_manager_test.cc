// What a scheduler asks of the cache, on real books over the model of device memory.
#include "kvcore/cache/kv_cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "fakes/doubles/test_hooks.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Blocks = KvCacheManager::Blocks;

// Pages of 4 blocks, one layer, K and V.
class KvCacheManagerTest : public ::testing::Test {
 protected:
  void make(std::int64_t pages, bool null_block = false, std::int64_t high = 0,
            std::size_t memory = 1u << 20) {
    vmm_ = std::make_unique<ModelVmm>(memory);
    allocator_ = make_kv_allocator(*vmm_, {});
    KvShape shape;
    shape.page_bytes = ModelVmm::kPage;
    shape.tensor_bytes = static_cast<std::size_t>(pages) * 2 * ModelVmm::kPage;
    ASSERT_TRUE(allocator_->create_tensors(0, shape).ok());
    backend_ = std::make_unique<LocalPages>(*allocator_, 0, ModelVmm::kPage);
    PageOptions options;
    options.pages = pages;
    options.page_bytes = 2 * ModelVmm::kPage;
    options.high = high;
    options.keeper = false;
    pages_ = std::move(*PageAllocator::make(options, *backend_, clock_, {}));
    auto made =
        KvCacheManager::make({ModelVmm::kPage, ModelVmm::kPage / 4, pages, null_block}, *pages_);
    made_ = made.status();
    if (made.ok()) cache_ = std::move(*made);
  }
  Blocks alloc(std::int64_t n) {
    auto blocks = cache_->alloc(n);
    EXPECT_TRUE(blocks.ok() && *blocks) << blocks.status().to_string();
    return blocks.ok() && *blocks ? **blocks : Blocks();
  }
  bool misses(std::int64_t n) {
    const auto blocks = cache_->alloc(n);
    return blocks.ok() && !*blocks;
  }

  std::unique_ptr<ModelVmm> vmm_;
  std::unique_ptr<KvAllocator> allocator_;
  std::unique_ptr<LocalPages> backend_;
  ManualClock clock_;
  std::unique_ptr<PageAllocator> pages_;
  std::unique_ptr<KvCacheManager> cache_;
  Status made_;
};

TEST_F(KvCacheManagerTest, KeepsTheBlocksOfARequestTogether) {
  make(4);
  EXPECT_THAT(alloc(3), ElementsAre(0, 1, 2));
  EXPECT_THAT(alloc(1), ElementsAre(3));
  EXPECT_THAT(alloc(2), ElementsAre(4, 5));
  EXPECT_THAT(alloc(6).size(), 6u);
  EXPECT_EQ(vmm_->handles(), 6u);  // three pages of K and V
}

TEST_F(KvCacheManagerTest, AMissIsAValueAndRollsBackExactly) {
  make(3);
  const Blocks mine = alloc(2);
  ASSERT_TRUE(*cache_->reserve(1));
  const CacheCounts before = cache_->counts();
  EXPECT_TRUE(misses(11));
  const CacheCounts after = cache_->counts();
  EXPECT_EQ(after.pages, before.pages);
  EXPECT_EQ(after.open_blocks, before.open_blocks);
  EXPECT_EQ(after.reserved_blocks, 1);
  EXPECT_EQ(after.used_blocks, 2);
  EXPECT_EQ(after.available_blocks, 10);
  EXPECT_EQ(alloc(10).size(), 10u);  // what it said is there
  EXPECT_TRUE(misses(1));
  EXPECT_EQ(cache_->alloc(-1).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(alloc(0).empty());
}

TEST_F(KvCacheManagerTest, ACardWithoutMemoryIsAMissToo) {
  make(4, false, 0, /*memory=*/2 * 2 * ModelVmm::kPage);  // for two pages of K and V
  EXPECT_EQ(alloc(5).size(), 5u);
  EXPECT_TRUE(misses(4));
  EXPECT_EQ(cache_->counts().pages.used, 2);
  EXPECT_EQ(alloc(3).size(), 3u);
  EXPECT_THAT(vmm_->broken(), IsEmpty());
}

TEST_F(KvCacheManagerTest, ReservedBlocksComeFirstInTheirOrder) {
  make(4);
  ASSERT_TRUE(*cache_->reserve(2));
  ASSERT_TRUE(*cache_->reserve(1));
  EXPECT_EQ(cache_->counts().reserved_blocks, 3);
  EXPECT_THAT(alloc(2), ElementsAre(0, 1));
  EXPECT_THAT(alloc(2), ElementsAre(2, 3));
  ASSERT_TRUE(*cache_->reserve(4));
  const auto none = cache_->reserve(100);
  EXPECT_TRUE(none.ok() && !*none);
  EXPECT_EQ(cache_->counts().reserved_blocks, 4);
  EXPECT_TRUE(cache_->free_reserved().ok());
  EXPECT_EQ(cache_->counts().reserved_blocks, 0);
  EXPECT_EQ(cache_->counts().pages.used, 1);
  EXPECT_EQ(cache_->reserve(-1).status().code(), Code::kInvalidArgument);
}

TEST_F(KvCacheManagerTest, FreeingWhatIsNotGivenOutIsAnErrorThatNamesIt) {
  make(4, /*null_block=*/true);
  const Blocks mine = alloc(3);
  ASSERT_TRUE(*cache_->reserve(1));
  const auto refused = [this](const Blocks& blocks, const char* block, const char* why) {
    const Status status = cache_->free(blocks);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.object(), block);
    EXPECT_THAT(std::string(status.text()), HasSubstr(why));
    EXPECT_EQ(cache_->counts().used_blocks, 3);
  };
  refused({mine[0], 0}, "block 0", "the null block");
  refused({mine[0], mine[1], mine[0]}, "block 1", "twice");
  refused({mine[0], 4}, "block 4", "reserved");
  refused({mine[0], 15}, "block 15", "never given");
  refused({16}, "block 16", "never given");
  refused({-5}, "block -5", "never given");
  EXPECT_TRUE(cache_->free({mine[1]}).ok());
  const Status again = cache_->free({mine[1]});
  EXPECT_THAT(std::string(again.text()), HasSubstr("free already"));
  EXPECT_TRUE(cache_->free({mine[2], mine[0]}).ok());
}

TEST_F(KvCacheManagerTest, TheNullBlockIsNobodysAndItsPageStays) {
  make(2, /*null_block=*/true, 2);
  EXPECT_THAT(alloc(4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(alloc(3), ElementsAre(1, 2, 3));
  EXPECT_TRUE(cache_->free({1, 2, 3, 4, 5, 6, 7}).ok());
  EXPECT_EQ(cache_->counts().pages.used, 1);
  EXPECT_THAT(cache_->occupancy(), ElementsAre(Pair(0, 1)));
  EXPECT_TRUE(cache_->clear().ok());
  EXPECT_EQ(cache_->counts().pages.used, 1);
  EXPECT_TRUE(pages_->trim().ok());
  EXPECT_EQ(vmm_->handles(), 2u);
}

TEST_F(KvCacheManagerTest, APageGoesWithItsLastBlock) {
  make(4, false, 1);
  const Blocks mine = alloc(12);
  EXPECT_TRUE(cache_->free({0, 1, 2, 3, 4}).ok());
  EXPECT_EQ(cache_->counts().pages.ready, 1);
  EXPECT_TRUE(cache_->free({5, 6, 7, 8, 9, 10, 11}).ok());
  EXPECT_EQ(cache_->counts().pages.ready, 1);
  EXPECT_EQ(cache_->counts().pages.free, 3);
  EXPECT_EQ(vmm_->handles(), 2u);
}

TEST_F(KvCacheManagerTest, ClearTakesEverythingBack) {
  make(4);
  alloc(6);
  ASSERT_TRUE(*cache_->reserve(3));
  EXPECT_TRUE(cache_->clear().ok());
  const CacheCounts counts = cache_->counts();
  EXPECT_EQ(counts.used_blocks, 0);
  EXPECT_EQ(counts.reserved_blocks, 0);
  EXPECT_EQ(counts.pages.free, 4);
  EXPECT_EQ(vmm_->handles(), 0u);
  EXPECT_EQ(alloc(16).size(), 16u);
}

TEST_F(KvCacheManagerTest, AFailureOfTheDriverIsAnErrorAndTakesNothing) {
  make(4);
  alloc(2);
  vmm_->fault = [](const std::string& call, int) { return call == "map" ? 999 : 0; };
  const auto failed = cache_->alloc(3);
  EXPECT_EQ(failed.status().native(), 999);
  EXPECT_EQ(cache_->counts().used_blocks, 2);
  EXPECT_EQ(cache_->counts().open_blocks, 2);
  EXPECT_EQ(alloc(2).size(), 2u);  // needs no page
}

// The driver said that a page was unmapped, and refuses the next one there.
TEST_F(KvCacheManagerTest, APageThatIsRefusedIsSetAsideAndTheOthersServe) {
  make(3);
  ASSERT_THAT(alloc(4), ElementsAre(0, 1, 2, 3));
  bool once = true;
  vmm_->pretend = [&once](const std::string& call, int) {
    return call == "unmap" && std::exchange(once, false);
  };
  ASSERT_TRUE(cache_->free({0, 1, 2, 3}).ok());
  EXPECT_EQ(cache_->counts().pages.free, 3);
  EXPECT_EQ(cache_->alloc(4).status().code(), Code::kQuarantined);
  EXPECT_EQ(cache_->counts().pages.quarantined, 1);
  EXPECT_THAT(alloc(8), ElementsAre(8, 9, 10, 11, 4, 5, 6, 7));
  EXPECT_TRUE(misses(1));
  EXPECT_EQ(cache_->counts().pages.quarantined, 1);
}

TEST_F(KvCacheManagerTest, ACloseGivesTheNullBlocksPageBackToo) {
  make(4, /*null_block=*/true);
  alloc(6);
  EXPECT_TRUE(*cache_->reserve(2));
  EXPECT_TRUE(cache_->clear().ok());
  EXPECT_EQ(cache_->counts().pages.used, 1);
  for (int time = 0; time < 2; ++time) {
    EXPECT_TRUE(cache_->close().ok());
    EXPECT_EQ(cache_->counts().pages.used, 0);
    EXPECT_EQ(vmm_->handles(), 0u);
  }
}

TEST_F(KvCacheManagerTest, ThePageOfTheNullBlockMustBeThere) {
  make(4, /*null_block=*/true, 0, /*memory=*/ModelVmm::kPage);
  EXPECT_EQ(made_.code(), Code::kOutOfMemory);
  EXPECT_THAT(made_.to_string(), HasSubstr("null_block"));
  make(4);
  auto wrong = KvCacheManager::make({ModelVmm::kPage, 2 * ModelVmm::kPage, 4, false}, *pages_);
  EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
  wrong = KvCacheManager::make({ModelVmm::kPage, 64, 5, false}, *pages_);
  EXPECT_THAT(wrong.status().to_string(), HasSubstr("pages 5"));
}

}  // namespace
}  // namespace kv
