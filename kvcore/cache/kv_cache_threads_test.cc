// A cache with its keeper under several threads at once: no block belongs to two, nothing is lost,
// and a stop in the middle leaves the books balanced.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/cache/kv_cache_manager.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

constexpr std::int64_t kPages = 12;
constexpr int kThreads = 3, kRounds = 1500;

class KvCacheThreads : public ::testing::Test {
 protected:
  KvCacheThreads() : allocator_(make_kv_allocator(vmm_, {})), backend_(*allocator_, 0, kPage) {
    KvShape shape;
    shape.page_bytes = kPage;
    shape.tensor_bytes = kPages * 2 * kPage;
    EXPECT_TRUE(allocator_->create_tensors(0, shape).ok());
    PageOptions options;
    options.pages = kPages;
    options.page_bytes = 2 * kPage;
    options.low = 2;
    options.high = 3;
    // value() ends the test where there is none; the keeper is at page 0 by now.
    pages_ = std::move(PageAllocator::make(options, backend_, clock_, {}).value());
    cache_ = std::move(KvCacheManager::make({kPage, kPage / 8, kPages, true}, *pages_).value());
  }

  void work(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::int64_t> mine;
    bool told = false;
    for (int round = 0; round < kRounds; ++round) {
      if (mine.size() < 24 && random() % 2 == 0) {
        const auto got = cache_->alloc(1 + random() % 6);
        if (!got.ok()) break;
        if (!*got) continue;
        if (seed == 0 && !std::exchange(told, true)) underway_.count_down();
        for (const std::int64_t block : **got) {
          EXPECT_FALSE(owned_.at(static_cast<std::size_t>(block)).exchange(true)) << block;
          mine.push_back(block);
        }
      } else {
        const std::size_t n = std::min<std::size_t>(mine.size(), random() % 8);
        const std::vector<std::int64_t> back(mine.end() - static_cast<std::ptrdiff_t>(n),
                                             mine.end());
        mine.resize(mine.size() - n);
        for (const std::int64_t block : back) owned_.at(static_cast<std::size_t>(block)) = false;
        EXPECT_TRUE(cache_->free(back).ok());
      }
      if (seed == 0 && round % 50 == 0) {
        pages_->set_limit(kPages - static_cast<std::int64_t>(random() % 4), ++revision_);
        EXPECT_TRUE(pages_->trim().ok());
      }
      const PageCounts counts = pages_->counts();
      EXPECT_EQ(counts.free + counts.ready + counts.used + counts.transit + counts.quarantined,
                counts.total);
    }
    for (const std::int64_t block : mine) owned_.at(static_cast<std::size_t>(block)) = false;
    EXPECT_TRUE(cache_->free(mine).ok());
  }
  void run(const std::function<void()>& meanwhile) {
    std::vector<std::thread> threads;
    for (std::uint32_t seed = 0; seed < kThreads; ++seed) {
      threads.emplace_back([this, seed] { work(seed); });
    }
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    pages_->stop();
    const CacheCounts counts = cache_->counts();
    EXPECT_EQ(counts.used_blocks, 0);
    EXPECT_EQ(counts.pages.used, 1);  // the null block's
    EXPECT_EQ(counts.pages.transit, 0);
    EXPECT_TRUE(pages_->trim().ok());
    EXPECT_EQ(vmm_.handles(), 2u);
    EXPECT_TRUE(vmm_.broken().empty());
  }

  static constexpr std::size_t kPage = ModelVmm::kPage;
  ModelVmm vmm_;
  RealClock clock_;
  std::unique_ptr<KvAllocator> allocator_;
  LocalPages backend_;
  std::unique_ptr<PageAllocator> pages_;
  std::unique_ptr<KvCacheManager> cache_;
  std::vector<std::atomic<bool>> owned_ = std::vector<std::atomic<bool>>(kPages * 8);
  std::uint64_t revision_ = 0;
  std::latch underway_{1};  // the first thread has blocks
};

TEST_F(KvCacheThreads, NoBlockHasTwoOwnersAndNothingIsLost) {
  run([] {});
}

TEST_F(KvCacheThreads, AStopInTheMiddleLeavesTheBooksBalanced) {
  run([this] {
    underway_.wait();
    pages_->stop();
  });
}

}  // namespace
}  // namespace kv
