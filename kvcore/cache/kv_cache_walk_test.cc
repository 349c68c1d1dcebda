// Random histories of a cache against a small obvious model: what is given out, and how
// many are reserved. At every step driver calls may fail, alone or with all that follow, the undo
// included. After every step the books balance, agree with the model and with device memory, and
// every block that is given out holds the bytes that were written to it.
//
// The seed of a walk is its number; --gtest_filter and the trace of a failure name it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/cache/kv_cache_manager.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

using Blocks = KvCacheManager::Blocks;
constexpr std::size_t kPage = ModelVmm::kPage;
constexpr int kSteps = 400;

struct Setting {
  KvLayout layout = KvLayout::kPerLayer;
  std::size_t block_bytes = 0;
  bool null_block = false;
  std::int64_t pages = 0;
  std::size_t memory_pages = 0;  // of the card, in pages of an offset: fewer make misses
  bool faults = false;
  bool zero_page = false;
};

class Walk {
 public:
  Walk(const Setting& setting, std::uint32_t seed)
      : setting_(setting),
        plan_(kPage, setting.block_bytes),
        random_(seed),
        vmm_(setting.memory_pages * page_memory() + (setting.zero_page ? piece() : 0)),
        allocator_(make_kv_allocator(vmm_, {})),
        backend_(*allocator_, 0, kPage) {
    KvShape shape;
    shape.layers = kLayers;
    shape.layout = setting.layout;
    shape.page_bytes = kPage;
    shape.zero_page = setting.zero_page;
    shape.tensor_bytes = static_cast<std::size_t>(setting.pages) * kPage *
                         (setting.layout == KvLayout::kUnified ? 1 : 2);
    EXPECT_TRUE(allocator_->create_tensors(0, shape).ok());
    PageOptions options;
    options.pages = setting.pages;
    options.page_bytes = static_cast<std::int64_t>(page_memory());
    options.high = upto(3);
    options.keeper = false;
    pages_ = std::move(*PageAllocator::make(options, backend_, clock_, {}));
    cache_ = std::move(*KvCacheManager::make(
        {kPage, setting.block_bytes, setting.pages, setting.null_block}, *pages_));
  }

  void run() {
    for (step_ = 0; step_ < kSteps && !::testing::Test::HasFailure(); ++step_) {
      act();
      check();
    }
    end();
  }

 private:
  static constexpr int kLayers = 2;
  std::size_t page_memory() const {
    return kLayers * kPage * (setting_.layout == KvLayout::kUnified ? 1 : 2);
  }
  std::int64_t upto(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random_);
  }

  // From call `first` on of the next operation: only that one, or all.
  void arm() {
    failed_ = 0;
    if (!setting_.faults || upto(2) != 0) return;
    const int first = static_cast<int>(upto(12));
    const bool all = upto(3) == 0;
    const int code = upto(1) == 0 ? 2 : 999;
    vmm_.start_counting();
    vmm_.fault = [this, first, all, code](const std::string&, int number) {
      if (number != first && !(all && number > first)) return 0;
      ++failed_;
      return code;
    };
  }
  bool disarm() {
    vmm_.fault = nullptr;
    return failed_ > 0;
  }

  void act() {
    const CacheCounts before = cache_->counts();
    switch (upto(11)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return alloc(upto(2) == 0 ? upto(3 * plan_.least()) : 1 + upto(5), before);
      case 4:
      case 5:
      case 6:
      case 7:
        return free_some();
      case 8:
        return upto(1) == 0 ? reserve(upto(6), before) : free_reserved();
      case 9:
        return set_limit();
      case 10:
        arm();
        (void)pages_->trim();
        disarm();
        return;
      default:
        return upto(9) == 0 ? clear() : free_wrong();
    }
  }

  void alloc(std::int64_t n, const CacheCounts& before) {
    arm();
    const auto got = cache_->alloc(n);
    const bool failed = disarm();
    if (!got.ok() || !*got) {
      if (!failed) {
        EXPECT_TRUE(got.ok()) << got.status().to_string();
        EXPECT_TRUE(before.available_blocks < n || tight(before)) << "a needless miss";
        EXPECT_EQ(cache_->counts().open_blocks, before.open_blocks);
        EXPECT_EQ(cache_->counts().pages, before.pages);
      }
      return;
    }
    ASSERT_EQ((*got)->size(), static_cast<std::size_t>(n));
    for (const std::int64_t block : **got) {
      EXPECT_GE(plan_.page_of(block), 0);
      EXPECT_FALSE(setting_.null_block && block == 0);
      EXPECT_TRUE(given_.emplace(block, next_stamp_).second) << block << " was given out before";
      write(block, next_stamp_++);
    }
    reserved_ -= std::min(reserved_, n);
  }
  // A card that may not have memory for all free pages.
  bool tight(const CacheCounts&) const {
    return setting_.memory_pages < static_cast<std::size_t>(setting_.pages) || lost_;
  }

  void free_some() {
    Blocks blocks;
    const std::int64_t n = upto(1) == 0 ? upto(3) : upto(static_cast<std::int64_t>(given_.size()));
    while (static_cast<std::int64_t>(blocks.size()) < n && !given_.empty()) {
      auto one = std::next(given_.begin(), upto(static_cast<std::int64_t>(given_.size()) - 1));
      EXPECT_EQ(read(one->first), one->second) << "block " << one->first << " lost its bytes";
      blocks.push_back(one->first);
      given_.erase(one);
    }
    arm();
    const Status status = cache_->free(blocks);
    // Freed all the same: what failed is the unmapping of a page that became empty.
    EXPECT_TRUE(disarm() || status.ok()) << status.to_string();
  }

  void free_wrong() {
    std::int64_t wrong = upto(plan_.end(setting_.pages - 1) + 2) - 1;
    if (given_.contains(wrong)) return;
    Blocks blocks{wrong};
    if (!given_.empty()) blocks.insert(blocks.begin(), given_.begin()->first);
    EXPECT_EQ(cache_->free(blocks).code(), Code::kInvalidArgument) << wrong;
  }

  void reserve(std::int64_t n, const CacheCounts& before) {
    arm();
    const auto done = cache_->reserve(n);
    const bool failed = disarm();
    if (!done.ok() || !*done) {
      EXPECT_TRUE(failed || tight(before) || before.available_blocks - before.reserved_blocks < n);
      return;
    }
    reserved_ += n;
  }
  void free_reserved() {
    arm();
    (void)cache_->free_reserved();
    disarm();
    reserved_ = 0;
  }

  void set_limit() {
    arm();
    const std::int64_t pages = upto(setting_.pages);
    const auto result = pages_->set_limit(pages, ++revision_);
    disarm();
    const PageCounts counts = pages_->counts();
    EXPECT_EQ(counts.wanted, pages);
    EXPECT_EQ(result == LimitResult::kApplied, counts.total == pages);
  }

  void clear() {
    arm();
    (void)cache_->clear();
    disarm();
    given_.clear();
    reserved_ = 0;
  }

  void check() {
    const CacheCounts counts = cache_->counts();
    const PageCounts& pages = counts.pages;
    SCOPED_TRACE("step " + std::to_string(step_));
    EXPECT_EQ(pages.free + pages.ready + pages.used + pages.transit + pages.quarantined,
              pages.total);
    EXPECT_EQ(pages.total + pages.withheld, setting_.pages);
    EXPECT_EQ(pages.transit, 0);
    EXPECT_EQ(counts.used_blocks, static_cast<std::int64_t>(given_.size()));
    EXPECT_EQ(counts.reserved_blocks, reserved_);
    std::int64_t occupied = 0;
    for (const auto& [page, blocks] : cache_->occupancy()) occupied += blocks;
    EXPECT_EQ(occupied,
              counts.used_blocks + counts.reserved_blocks + (setting_.null_block ? 1 : 0));
    EXPECT_TRUE(vmm_.broken().empty()) << vmm_.broken().front();
    const KvCounts device = allocator_->counts();
    if (setting_.zero_page) {
      check_zero_page(device);
    } else {
      EXPECT_EQ(device.mapped_pages + device.quarantined_pages, vmm_.handles());
    }
    EXPECT_EQ(device.mapped_pages * piece(),
              static_cast<std::uint64_t>(pages.used + pages.ready) * page_memory());
    lost_ = lost_ || pages.quarantined > 0;
  }
  // Every piece has its page or the zero page; one that has neither is set aside.
  void check_zero_page(const KvCounts& device) {
    std::uint64_t bare = device.reserved_bytes / piece();
    for (const auto& [address, mapping] : vmm_.mappings()) {
      bare -= mapping.access != Access::kNone ? 1 : 0;
    }
    const std::uint64_t known = device.mapped_pages + device.quarantined_pages + 1;
    EXPECT_LE(vmm_.handles(), known);
    EXPECT_LE(known, vmm_.handles() + bare);
    EXPECT_LE(bare, device.quarantined_pages);
    for (std::int64_t page = 0; page < setting_.pages; ++page) {
      const std::int64_t offset = page * static_cast<std::int64_t>(kPage);
      if (allocator_->page_states(0, {offset})->front() != PageMap::kUnmapped) continue;
      std::int64_t value = -1;
      EXPECT_TRUE(
          vmm_.copy_from_device(&value, *allocator_->address(0, 0, 0, offset), sizeof value).ok());
      EXPECT_EQ(value, 0) << "page " << page;
    }
  }
  std::uint64_t piece() const {
    return setting_.layout == KvLayout::kContiguous ? page_memory() : kPage;
  }

  // Everything goes back, whatever happened before.
  void end() {
    (void)cache_->clear();
    (void)pages_->trim();
    EXPECT_EQ(pages_->counts().used, setting_.null_block ? 1 : 0);
    EXPECT_TRUE(allocator_->release_all().ok());
    EXPECT_EQ(vmm_.used_bytes(), 0u);
    EXPECT_EQ(vmm_.reserved_bytes(), 0u);
  }

  DeviceAddress at(std::int64_t block, int layer) {
    return *allocator_->address(0, layer, 0,
                                block * static_cast<std::int64_t>(setting_.block_bytes));
  }
  void write(std::int64_t block, std::int64_t stamp) {
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_TRUE(vmm_.copy_to_device(at(block, layer), &stamp, sizeof stamp).ok());
    }
  }
  std::int64_t read(std::int64_t block) {
    std::int64_t stamp = -1, other = -1;
    EXPECT_TRUE(vmm_.copy_from_device(&stamp, at(block, 0), sizeof stamp).ok());
    EXPECT_TRUE(vmm_.copy_from_device(&other, at(block, 1), sizeof other).ok());
    return stamp == other ? stamp : -2;
  }

  const Setting setting_;
  const BlockPlan plan_;
  std::mt19937 random_;
  ModelVmm vmm_;
  std::unique_ptr<KvAllocator> allocator_;
  LocalPages backend_;
  ManualClock clock_;
  std::unique_ptr<PageAllocator> pages_;
  std::unique_ptr<KvCacheManager> cache_;

  int step_ = 0, failed_ = 0;
  bool lost_ = false;
  std::uint64_t revision_ = 0;
  std::int64_t next_stamp_ = 1;
  std::map<std::int64_t, std::int64_t> given_;  // block: its stamp
  std::int64_t reserved_ = 0;                   // which ones shows when they are given out
};

void walk(Setting setting, std::uint32_t seeds) {
  for (const KvLayout layout : {KvLayout::kPerLayer, KvLayout::kContiguous, KvLayout::kUnified}) {
    setting.layout = layout;
    for (std::uint32_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(std::string(layout_name(layout)) + ", seed " + std::to_string(seed));
      Walk(setting, seed).run();
    }
  }
}

TEST(KvCacheWalk, PlentyOfMemoryAndNoFaults) {
  walk({{}, kPage / 8, true, 8, 8, false}, 40);
}
TEST(KvCacheWalk, BlocksThatDoNotDivideAPage) {
  walk({{}, 600, true, 8, 8, false}, 40);
}
TEST(KvCacheWalk, ACardThatIsTooSmall) {
  walk({{}, kPage / 4, false, 8, 5, false}, 40);
}
TEST(KvCacheWalk, DriverCallsFailAndSoDoesTheUndo) {
  walk({{}, kPage / 8, true, 8, 8, true}, 80);
}
TEST(KvCacheWalk, FaultsOnACardThatIsTooSmall) {
  walk({{}, 600, false, 12, 7, true}, 80);
}
TEST(KvCacheWalk, WhatHasNoPageReadsZeros) {
  walk({{}, kPage / 8, true, 8, 6, false, true}, 40);
}
TEST(KvCacheWalk, FaultsWithTheZeroPage) {
  walk({{}, kPage / 8, true, 8, 7, true, true}, 80);
}

}  // namespace
}  // namespace kv
