// The caches of a worker that blocks are given out from: for each group its pages, its blocks, and
// where the drill asks for them a record in shared memory and a part in a card's budget.
//
// Threads: all members from any thread, several at once. A mutex orders the table only; a call
// inside the driver or a wait parks nobody but itself. A cache that is being closed refuses new
// calls; those that are inside keep it alive until they are out, and close() waits for those of
// them that are in the driver, and for the keeper, up to the limit. Of two close() at once the
// second waits for the first.
// Ownership: owns the caches; borrows allocator and clock, which live as long as the process. Never
// destroyed: a process that leaves with a thread inside the driver leaves that cache as it is.
#ifndef FAKES_WORKER_KV_CACHES_H_
#define FAKES_WORKER_KV_CACHES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/cache/card_budget.h"
#include "kvcore/cache/kv_cache_manager.h"
#include "kvcore/cache/mem_info_segment.h"
#include "kvcore/cache/page_allocator.h"
#include "kvcore/listener/listener.h"
#include "kvcore/memory/kv_allocator.h"
#include "kvcore/memory/kv_layout.h"

namespace kv::worker {

struct KvCacheSpec {
  std::int64_t group = 0;
  PageOptions pages;           // its page_bytes and record are filled in
  std::size_t page_bytes = 0;  // of one buffer; 0: the group's
  std::size_t block_bytes = 0;
  bool null_block = true;
  std::string record;  // its path; empty: none
  std::string budget;  // its path; empty: none
  std::int64_t budget_bytes = 0;
  bool removes_budget = false;  // when it is closed: the file is its own, others joined it
};

// Destroyed from the bottom up: the blocks before the pages, those before what they stand on.
struct KvCache {
  KvCacheSpec spec;
  std::unique_ptr<CardBudget> budget;
  std::unique_ptr<MemInfoSegment> record;
  std::optional<LocalPages> local;
  std::optional<BudgetedPages> budgeted;
  std::unique_ptr<PageAllocator> pages;
  std::unique_ptr<KvCacheManager> blocks;
  std::mutex closing;  // held by whoever closes it: nobody else says that it is done before
};

class KvCaches {
 public:
  // `shape`: of every group.
  KvCaches(KvAllocator& allocator, const KvShape& shape, Nanos drain_limit, Clock& clock,
           LogSink log);

  // kAlreadyExists: the group has one. kNotFound: the group has no tensors. On failure nothing is
  // left of it.
  Status make(KvCacheSpec spec);
  // Calls `use`. kNotFound: the group has none, or it is being closed.
  Status with(std::int64_t group, const std::function<Status(KvCache&)>& use);
  // Stops it, gives every page back and forgets it. Not done: it stays, stopped; call again.
  StopResult close(std::int64_t group, Status* why);
  // All of them under one limit; the first that is not done.
  StopResult close_all(Status* why);

 private:
  struct Entry {
    std::shared_ptr<KvCache> cache;
    bool closing = false;
  };
  Status build(KvCache* cache);
  void undo(KvCache* cache);
  StopResult close(std::int64_t group, Time until, Status* why);

  KvAllocator& allocator_;
  const KvShape shape_;
  const Nanos drain_limit_;
  Clock& clock_;
  const LogSink log_;
  std::mutex mutex_;
  std::map<std::int64_t, Entry> caches_;
};

}  // namespace kv::worker

#endif  // FAKES_WORKER_KV_CACHES_H_
