// Blocks of attention cache for requests: what a scheduler asks. Pages come and go below it
// (page_allocator.h); a request that cannot be met is a miss, a value, and leaves everything as it
// was.
//
// Threads: all members from any thread. A mutex orders the books; it is not held while pages are
// mapped or unmapped, so while one allocation is inside the driver, freeing, asking and allocating
// from open pages go on.
// Ownership: borrows the PageAllocator, which must outlive it; gives nothing back at destruction.
#ifndef KVCORE_CACHE_KV_CACHE_MANAGER_H_
#define KVCORE_CACHE_KV_CACHE_MANAGER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kvcore/base/status.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/cache/block_pool.h"
#include "kvcore/cache/page_allocator.h"

namespace kv {

struct CacheOptions {
  std::size_t page_bytes = 2u << 20;  // of one buffer
  std::size_t block_bytes = 0;        // of one buffer; at most a page
  std::int64_t pages = 0;             // as the PageAllocator's
  // Block 0 is nobody's: engines let padding point there. Its page is mapped for good.
  bool null_block = true;
};

// One consistent look.
struct CacheCounts {
  PageCounts pages;
  std::int64_t used_blocks = 0;      // given out
  std::int64_t reserved_blocks = 0;  // kept for later allocations
  std::int64_t open_blocks = 0;      // free, in pages that have others
  // What an allocation could get now at least, if the card has memory: reserved, open, and the
  // blocks of free and ready pages.
  std::int64_t available_blocks = 0;
};

class KvCacheManager {
 public:
  using Blocks = std::vector<std::int64_t>;

  // kInvalidArgument: the options; otherwise why the null block's page cannot be had.
  static Result<std::unique_ptr<KvCacheManager>> make(const CacheOptions& options,
                                                      PageAllocator& pages);

  // `n` blocks: those reserved, in the order in which they were, then from the page where they fit
  // best. No value: a miss. kDeadline, kCancelled and the backend's failure as PageAllocator::take;
  // nothing has changed then.
  Result<std::optional<Blocks>> alloc(std::int64_t n) KV_EXCLUDES(mutex_);
  // kInvalidArgument, nothing done: names the block that is not given out (free already, reserved,
  // the null block, never there) or is there twice.
  Status free(const Blocks& blocks) KV_EXCLUDES(mutex_);

  // Sets `n` more blocks aside for the allocations to come; false: a miss.
  Result<bool> reserve(std::int64_t n) KV_EXCLUDES(mutex_);
  Status free_reserved() KV_EXCLUDES(mutex_);
  // Takes every block back, given out or reserved. Nobody uses them any more, says the caller.
  Status clear() KV_EXCLUDES(mutex_);

  // From here on alloc() and reserve() are refused (kCancelled), also those that are inside: the
  // pages that they fetched go back. Blocks given out stay so and can be freed.
  void stop() KV_EXCLUDES(mutex_);
  // stop(), waits for calls that are inside, which PageAllocator::stop() brings back from the
  // backend, and takes every block back, the null block too, so that all pages can be given back
  // for good. May be called again; nothing else but counts() and occupancy() may follow.
  Status close() KV_EXCLUDES(mutex_);

  CacheCounts counts() const KV_EXCLUDES(mutex_);
  // Blocks given out or reserved in each page that has any, by page; for people and resizers.
  std::vector<std::pair<std::int64_t, std::int64_t>> occupancy() const KV_EXCLUDES(mutex_);

 private:
  using Pages = std::vector<std::int64_t>;
  KvCacheManager(const CacheOptions& options, PageAllocator& pages);

  std::int64_t at_hand() const KV_REQUIRES(mutex_) {
    return static_cast<std::int64_t>(reserved_.size()) + pool_.free_blocks();
  }
  Result<std::optional<Blocks>> alloc_blocks(std::int64_t n) KV_EXCLUDES(mutex_);
  Status take_back(MutexLock& lock, bool null_too) KV_REQUIRES(mutex_);
  // Pages for this manager alone to open; the lock is given up meanwhile.
  Result<std::optional<Pages>> fetch(MutexLock& lock, std::int64_t n) KV_REQUIRES(mutex_);
  // Opens pages until `n` more blocks than are reserved (`reserved` false) or in all are at hand.
  Result<bool> make_room(MutexLock& lock, std::int64_t n, bool count_reserved) KV_REQUIRES(mutex_);
  // Takes those that are empty out of the pool, for the caller to give back without the lock.
  Pages close_empty(const Pages& pages) KV_REQUIRES(mutex_);
  Status give_back(MutexLock& lock, const Pages& pages) KV_REQUIRES(mutex_);
  Status not_given(std::int64_t block, bool twice) const KV_REQUIRES(mutex_);
  static Status stopping(const char* operation, std::int64_t n);

  // A call that may give the lock up in its middle. Made and destroyed with the lock held.
  class Inside {
   public:
    explicit Inside(KvCacheManager& manager) KV_NO_THREAD_SAFETY_ANALYSIS : manager_(manager) {
      ++manager_.inside_;
    }
    ~Inside() KV_NO_THREAD_SAFETY_ANALYSIS {
      if (--manager_.inside_ == 0) manager_.idle_.notify_all();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    KvCacheManager& manager_;
  };

  const CacheOptions options_;
  const BlockPlan plan_;
  PageAllocator& pages_;

  mutable Mutex mutex_;
  BlockPool pool_ KV_GUARDED_BY(mutex_);
  std::deque<std::int64_t> reserved_ KV_GUARDED_BY(mutex_);
  std::int64_t used_ KV_GUARDED_BY(mutex_) = 0;
  std::int64_t inside_ KV_GUARDED_BY(mutex_) = 0;
  bool stopped_ KV_GUARDED_BY(mutex_) = false;
  std::condition_variable idle_;  // for close()
};

}  // namespace kv

#endif  // KVCORE_CACHE_KV_CACHE_MANAGER_H_
