// Which pages of a group are whose: a page is free, ready (mapped ahead, or kept mapped after its
// last block went), used, in transit (the driver is at it), quarantined, or withheld by the limit.
// Every page is in exactly one of these at every instant, also while driver calls fail.
//
// A thread of its own, the keeper, maps ahead when fewer than `low` pages are ready, up to `high`,
// and unmaps what is ready beyond `high`; so neither mapping nor the wait for work in flight that
// an unmap needs lies on the path of an allocation. It is woken by need and never polls. Without it
// (keeper = false) surplus pages are unmapped by whoever gives them back, and nothing is mapped
// ahead.
//
// Threads: all members from any thread; stop() not from the keeper's. No lock is held while the
// backend works, so a parked driver call parks one caller, and a stop with a limit says who is late
// instead of waiting for it. Ownership: borrows the backend, the clock and the record; owns the
// keeper.
#ifndef KVCORE_CACHE_PAGE_ALLOCATOR_H_
#define KVCORE_CACHE_PAGE_ALLOCATOR_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/peer_log.h"
#include "kvcore/base/status.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/cache/page_backend.h"

namespace kv {

// Pages; one consistent look. total = free + ready + used + transit + quarantined is what the limit
// in force allows, total + withheld what the address space has.
struct PageCounts {
  std::int64_t free = 0, ready = 0, used = 0, transit = 0, quarantined = 0, withheld = 0;
  std::int64_t total = 0;
  std::int64_t wanted = 0;  // total of the newest limit; below `total` while that is deferred
  bool operator==(const PageCounts&) const = default;
};

// Where the counts are published, and where a limit may come from: see mem_info_segment.h.
class PageRecord {
 public:
  virtual ~PageRecord() = default;
  // Called with a lock held, after every change: never waits for anybody.
  // `revision` is the newest limit's.
  virtual void publish(std::int64_t total_bytes, std::int64_t used_bytes, std::int64_t ready_bytes,
                       std::uint64_t revision) = 0;
  // A limit that somebody outside has written since the last call.
  struct Wish {
    std::int64_t bytes = 0;
    std::uint64_t revision = 0;  // 0: its writer knows none, and it counts as the newest
  };
  virtual std::optional<Wish> take_wish() = 0;
};

struct PageOptions {
  std::int64_t pages = 0;       // of the address space; the first limit
  std::int64_t page_bytes = 0;  // of memory behind a page, all layers and buffers: for the record
  std::int64_t low = 0, high = 0;
  bool keeper = true;
  Nanos wait_limit = std::chrono::seconds(5);  // of a take() that waits for pages in transit
  PageRecord* record = nullptr;                // may be null

  // kInvalidArgument: which field, its value, what was expected.
  Status validate() const;
};

enum class LimitResult : std::uint8_t {
  kApplied,   // in force
  kDeferred,  // the newest; in force as soon as enough pages in use come back
  kStale,     // older than one that was accepted: ignored
  kConflict,  // of the same revision as another value: ignored
};
const char* limit_result_name(LimitResult result);  // "applied", "deferred", "stale", "conflict"

class PageAllocator {
 public:
  // Starts the keeper, if there is to be one. kSystem: there is no thread to be had.
  // kInvalidArgument: the options, or a keeper for a backend that needs_idle().
  static Result<std::unique_ptr<PageAllocator>> make(const PageOptions& options,
                                                     PageBackend& backend, Clock& clock,
                                                     LogSink log);
  ~PageAllocator();  // stops; every page stays as it is
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;

  // `n` pages, mapped and the caller's: ready ones first, lowest numbers first. No value: a miss,
  // there are not that many, or the card has no memory for them; nothing has changed.
  // While pages in transit would make it possible it waits for them; kDeadline after the limit.
  // kCancelled: stop() was called. Otherwise the backend's failure; nothing has changed but what
  // was quarantined.
  Result<std::optional<std::vector<std::int64_t>>> take(std::int64_t n) KV_EXCLUDES(mutex_);
  // The same for one page, whichever it is; false: it is in use, withheld or lost, or a miss.
  Result<bool> take_page(std::int64_t page) KV_EXCLUDES(mutex_);
  // Back to ready. kInvalidArgument, nothing done: a page that is not in use, or is there twice.
  Status give_back(const std::vector<std::int64_t>& pages) KV_EXCLUDES(mutex_);
  // Unmaps all ready pages. The first failure; a page whose unmapping failed is ready again, or
  // quarantined.
  Status trim() KV_EXCLUDES(mutex_);

  // A new limit, in pages (more than there are: all). The highest revision wins.
  LimitResult set_limit(std::int64_t pages, std::uint64_t revision) KV_EXCLUDES(mutex_);
  std::uint64_t limit_revision() const KV_EXCLUDES(mutex_);
  // Takes over a limit that was written to the record; take() and give_back() do that too.
  void take_wish() KV_EXCLUDES(mutex_);

  PageCounts counts() const KV_EXCLUDES(mutex_);
  // Ends waiting take()s with kCancelled, and the keeper; returns when nobody is inside the backend
  // any more. False: somebody still was when the limit had passed; call again. Either way take() is
  // refused from here on. Idempotent, from any thread but the keeper's.
  bool stop(Nanos limit) KV_EXCLUDES(mutex_);
  void stop() KV_EXCLUDES(mutex_) { static_cast<void>(stop(Nanos::max())); }

 private:
  enum class Use : std::uint8_t { kFree, kReady, kUsed, kTransit, kQuarantined, kWithheld };
  static constexpr std::size_t kUses = 6;
  using Pages = std::vector<std::int64_t>;

  PageAllocator(const PageOptions& options, PageBackend& backend, Clock& clock, LogSink log);
  Status start();
  void keep();

  std::int64_t count(Use use) const KV_REQUIRES(mutex_) {
    return counts_[static_cast<std::size_t>(use)];
  }
  std::int64_t total() const KV_REQUIRES(mutex_) { return options_.pages - count(Use::kWithheld); }
  void move(std::int64_t page, Use to) KV_REQUIRES(mutex_);
  void move(const Pages& pages, Use to) KV_REQUIRES(mutex_);
  // Of these sets, the lowest first.
  Pages first_of(const std::set<std::int64_t>& set, std::int64_t n) const;
  // Free, or withheld when the limit asks for that.
  void set_free(std::int64_t page) KV_REQUIRES(mutex_);
  void settle(const Pages& pages, const std::vector<PageMap>& states) KV_REQUIRES(mutex_);
  void apply_limit() KV_REQUIRES(mutex_);
  LimitResult accept_limit(std::int64_t pages, std::uint64_t revision) KV_REQUIRES(mutex_);
  void look_for_wish() KV_REQUIRES(mutex_);
  void publish() KV_REQUIRES(mutex_);
  void wake() KV_REQUIRES(mutex_);
  // Tells the record and everybody who waits.
  void changed() KV_REQUIRES(mutex_) {
    publish();
    wake();
  }

  // Ready pages that are to be unmapped: beyond `high`, or beyond the limit.
  std::int64_t surplus() const KV_REQUIRES(mutex_);
  bool wants_more() const KV_REQUIRES(mutex_);
  bool has_work() const KV_REQUIRES(mutex_);
  // The only way to the backend: it gives the lock up meanwhile, after which `at` marks the moment,
  // and counts who is inside.
  using BackendCall = PageBackend::Done (PageBackend::*)(const Pages&);
  PageBackend::Done ask_backend(MutexLock& lock, BackendCall call, const Pages& pages,
                                void (*at)(std::int64_t), std::int64_t key) KV_REQUIRES(mutex_);
  // These give the lock up while the backend works.
  Status map_ahead(MutexLock& lock) KV_REQUIRES(mutex_);
  Status unmap_ready(MutexLock& lock, Pages pages) KV_REQUIRES(mutex_);
  Status shed_surplus(MutexLock& lock) KV_REQUIRES(mutex_);
  // Maps what is in transit already; on failure `ready` are ready again. False: no memory for it.
  Result<bool> map_for_caller(MutexLock& lock, const Pages& fresh, const Pages& ready)
      KV_REQUIRES(mutex_);
  // Until `n` pages are there, or cannot come any more; false: neither within the limit.
  bool wait_for_transit(MutexLock& lock, std::int64_t n) KV_REQUIRES(mutex_);
  void say(Severity severity, const std::string& line) const;

  const PageOptions options_;
  PageBackend& backend_;
  Clock& clock_;
  const LogSink log_;
  PeerLog wishes_;  // what tools outside ask for

  mutable Mutex mutex_;
  std::condition_variable changed_;  // for take() and stop()
  std::condition_variable need_;     // for the keeper
  std::vector<Use> use_ KV_GUARDED_BY(mutex_);
  std::array<std::int64_t, kUses> counts_ KV_GUARDED_BY(mutex_){};
  std::set<std::int64_t> free_ KV_GUARDED_BY(mutex_), ready_ KV_GUARDED_BY(mutex_),
      withheld_ KV_GUARDED_BY(mutex_);
  // Pages in transit that nobody has asked for: they end free or ready.
  std::int64_t returning_ KV_GUARDED_BY(mutex_) = 0;
  std::int64_t wanted_ KV_GUARDED_BY(mutex_);
  std::int64_t asked_ KV_GUARDED_BY(mutex_);  // the newest limit, as it was given
  std::uint64_t revision_ KV_GUARDED_BY(mutex_) = 0;
  bool filling_ KV_GUARDED_BY(mutex_) = false;
  // An unmap failed: the keeper tries again when somebody comes by, not at once.
  bool shedding_failed_ KV_GUARDED_BY(mutex_) = false;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::int64_t inside_ KV_GUARDED_BY(mutex_) = 0;  // threads in the backend
  bool keeping_ KV_GUARDED_BY(mutex_) = false;     // the keeper has not ended

  Mutex join_mutex_;  // two stop()s: one joins, both wait
  std::thread keeper_ KV_GUARDED_BY(join_mutex_);
};

}  // namespace kv

#endif  // KVCORE_CACHE_PAGE_ALLOCATOR_H_
