#include "kvcore/cache/kv_cache_manager.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvcore/hook.h"

namespace kv {

KvCacheManager::KvCacheManager(const CacheOptions& options, PageAllocator& pages)
    : options_(options),
      plan_(options.page_bytes, options.block_bytes),
      pages_(pages),
      pool_(plan_, options.pages) {}

Result<std::unique_ptr<KvCacheManager>> KvCacheManager::make(const CacheOptions& options,
                                                             PageAllocator& pages) {
  KV_RETURN_IF_ERROR(BlockPlan(options.page_bytes, options.block_bytes).check());
  const PageCounts counts = pages.counts();
  if (options.pages != counts.total + counts.withheld) {
    return Status::error(Code::kInvalidArgument, "cache.options",
                         "pages " + std::to_string(options.pages), 0,
                         "expected as many as the page allocator has");
  }
  std::unique_ptr<KvCacheManager> made(new KvCacheManager(options, pages));
  if (!options.null_block) return made;
  KV_ASSIGN_OR_RETURN(const bool first, pages.take_page(0));
  if (!first) {
    return Status::error(Code::kOutOfMemory, "cache.null_block", "page 0", 0,
                         "somebody has it, or there is no memory for it");
  }
  const MutexLock lock(made->mutex_);
  made->pool_.open(0);
  Blocks null;
  made->pool_.take(1, &null);
  made->pool_.set_given(null.front(), false);
  return made;
}

// ---- room

// The lock is given up within; the analysis cannot follow the condition.
Result<std::optional<KvCacheManager::Pages>> KvCacheManager::fetch(MutexLock& lock, std::int64_t n)
    KV_NO_THREAD_SAFETY_ANALYSIS {
  const bool unlocked = step<"cache.alloc.unlocked">(n);
  if (unlocked) lock.unlock();
  point<"cache.alloc.pages">(n);
  auto got = pages_.take(n);
  point<"cache.alloc.fetched">(n);
  if (unlocked) {
    lock.lock();
    step_done<"cache.alloc.unlocked">(n);
  }
  return got;
}

Result<bool> KvCacheManager::make_room(MutexLock& lock, std::int64_t n, bool count_reserved) {
  Pages fetched;
  for (;;) {
    const std::int64_t there = count_reserved ? at_hand() : pool_.free_blocks();
    if (there >= n) return true;
    const std::int64_t least = std::max<std::int64_t>(plan_.least(), 1);
    const std::int64_t wanted = (n - there + least - 1) / least;
    auto got = fetch(lock, wanted);
    if (got.ok() && *got) {
      for (const std::int64_t page : **got) pool_.open(page);
      fetched.insert(fetched.end(), (*got)->begin(), (*got)->end());
      if (!stopped_) continue;
      got = stopping("cache.alloc", n);
    }
    // Others may have freed blocks meanwhile.
    if (!stopped_ && (count_reserved ? at_hand() : pool_.free_blocks()) >= n) return true;
    if (!fetched.empty() && step<"cache.alloc.undo">(n)) {
      KV_RETURN_IF_ERROR(give_back(lock, close_empty(fetched)));
      step_done<"cache.alloc.undo">(n);
    }
    if (!got.ok()) return got.status();
    return false;
  }
}

KvCacheManager::Pages KvCacheManager::close_empty(const Pages& pages) {
  Pages closed;
  for (const std::int64_t page : pages) {
    if (!pool_.is_open(page) || !pool_.is_empty(page)) continue;
    pool_.close(page);
    closed.push_back(page);
  }
  return closed;
}

// The lock is its caller's, which the analysis does not see.
Status KvCacheManager::give_back(MutexLock& lock, const Pages& pages) KV_NO_THREAD_SAFETY_ANALYSIS {
  if (pages.empty()) return {};
  lock.unlock();
  Status status = pages_.give_back(pages);
  lock.lock();
  return status;
}

// ---- blocks

Result<std::optional<KvCacheManager::Blocks>> KvCacheManager::alloc(std::int64_t n) {
  auto blocks = alloc_blocks(n);
  note<"cache.alloc.return">(n, static_cast<std::int64_t>(blocks.status().code()));
  return blocks;
}

Result<std::optional<KvCacheManager::Blocks>> KvCacheManager::alloc_blocks(std::int64_t n) {
  if (n < 0) {
    return Status::error(Code::kInvalidArgument, "cache.alloc", std::to_string(n) + " blocks", 0,
                         "expected 0 or more");
  }
  Blocks blocks;
  blocks.reserve(static_cast<std::size_t>(n));
  MutexLock lock(mutex_);
  if (stopped_) return stopping("cache.alloc", n);
  const Inside inside(*this);
  KV_ASSIGN_OR_RETURN(const bool room, make_room(lock, n, /*count_reserved=*/true));
  if (!room) return std::optional<Blocks>();
  for (; !reserved_.empty() && static_cast<std::int64_t>(blocks.size()) < n;) {
    blocks.push_back(reserved_.front());
    pool_.set_given(reserved_.front(), true);
    reserved_.pop_front();
  }
  pool_.take(n - static_cast<std::int64_t>(blocks.size()), &blocks);
  used_ += n;
  return std::optional<Blocks>(std::move(blocks));
}

Status KvCacheManager::stopping(const char* operation, std::int64_t n) {
  return Status::error(Code::kCancelled, operation, std::to_string(n) + " blocks", 0, "stopping");
}

Status KvCacheManager::not_given(std::int64_t block, bool twice) const {
  const char* why = "it was never given out";
  if (twice) {
    why = "it is there twice";
  } else if (options_.null_block && block == 0) {
    why = "it is the null block";
  } else if (pool_.state(block) == BlockPool::Block::kHeld) {
    why = "it is reserved";
  } else if (pool_.state(block) == BlockPool::Block::kFree) {
    why = "it is free already";
  }
  return Status::error(Code::kInvalidArgument, "cache.free", "block " + std::to_string(block), 0,
                       why);
}

Status KvCacheManager::free(const Blocks& blocks) {
  MutexLock lock(mutex_);
  const Inside inside(*this);
  const std::size_t held = pool_.hold(blocks);
  if (held < blocks.size() && step<"cache.free.check">(blocks[held])) {
    const auto before = blocks.begin() + static_cast<std::ptrdiff_t>(held);
    const bool twice = std::find(blocks.begin(), before, *before) != before;
    const Status status = not_given(*before, twice);
    if (step<"cache.free.whole">(*before)) {
      for (auto block = blocks.begin(); block != before; ++block) pool_.set_given(*block, true);
      step_done<"cache.free.whole">(*before);
    }
    step_done<"cache.free.check">(*before);
    return status;
  }
  Pages emptied;
  pool_.put(blocks, &emptied);
  used_ -= static_cast<std::int64_t>(blocks.size());
  Status status = give_back(lock, close_empty(emptied));
  note<"cache.free.return">(static_cast<std::int64_t>(blocks.size()));
  return status;
}

// ---- reserve and the rest

Result<bool> KvCacheManager::reserve(std::int64_t n) {
  if (n < 0) {
    return Status::error(Code::kInvalidArgument, "cache.reserve", std::to_string(n) + " blocks", 0,
                         "expected 0 or more");
  }
  MutexLock lock(mutex_);
  if (stopped_) return stopping("cache.reserve", n);
  const Inside inside(*this);
  KV_ASSIGN_OR_RETURN(const bool room, make_room(lock, n, /*count_reserved=*/false));
  if (!room) return false;
  Blocks blocks;
  pool_.take(n, &blocks);
  for (const std::int64_t block : blocks) {
    pool_.set_given(block, false);
    reserved_.push_back(block);
  }
  return true;
}

Status KvCacheManager::free_reserved() {
  MutexLock lock(mutex_);
  const Inside inside(*this);
  Pages touched;
  for (const std::int64_t block : reserved_) touched.push_back(pool_.put(block));
  reserved_.clear();
  return give_back(lock, close_empty(touched));
}

Status KvCacheManager::clear() {
  MutexLock lock(mutex_);
  const Inside inside(*this);
  return take_back(lock, /*null_too=*/false);
}

void KvCacheManager::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
}

Status KvCacheManager::close() {
  MutexLock lock(mutex_);
  stopped_ = true;
  if (inside_ > 0 && step<"cache.close.wait">(inside_)) {
    while (inside_ > 0) idle_.wait(lock.native());
    step_done<"cache.close.wait">();
  }
  return take_back(lock, /*null_too=*/true);
}

Status KvCacheManager::take_back(MutexLock& lock, bool null_too) {
  reserved_.clear();
  used_ = 0;
  Pages touched;
  for (std::int64_t page = 0; page < options_.pages; ++page) {
    if (!pool_.is_open(page)) continue;
    for (std::int64_t block = plan_.first(page); block < plan_.end(page); ++block) {
      const bool null = !null_too && options_.null_block && block == 0;
      if (!null && pool_.state(block) != BlockPool::Block::kFree) pool_.put(block);
    }
    touched.push_back(page);
  }
  return give_back(lock, close_empty(touched));
}

CacheCounts KvCacheManager::counts() const {
  const MutexLock lock(mutex_);
  CacheCounts counts;
  counts.pages = pages_.counts();
  counts.used_blocks = used_;
  counts.reserved_blocks = static_cast<std::int64_t>(reserved_.size());
  counts.open_blocks = pool_.free_blocks();
  counts.available_blocks = at_hand() + (counts.pages.free + counts.pages.ready) * plan_.least();
  return counts;
}

std::vector<std::pair<std::int64_t, std::int64_t>> KvCacheManager::occupancy() const {
  const MutexLock lock(mutex_);
  std::vector<std::pair<std::int64_t, std::int64_t>> pages;
  for (std::int64_t page = 0; page < options_.pages; ++page) {
    if (pool_.is_open(page)) pages.emplace_back(page, plan_.count(page) - pool_.free_in(page));
  }
  return pages;
}

}  // namespace kv
