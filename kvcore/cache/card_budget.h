// One budget of device memory for several engines on a card. To check that there is room and to
// take it is one step, so that two engines never both get the last page; what a dead engine held
// goes back.
//
// Each process has a slot of its own in a shared file, and writes no other. A claim adds to the own
// slot first and looks at the sum of all then: of two that come at once at least one sees both, so
// the sum that stays is never above the limit. Nobody waits for a lock, so a process that is
// stopped or killed in the middle stalls nobody; a slot whose owner is dead, which the kernel tells
// by the owner's file lock, is emptied by whoever misses for want of room.
//
// What is in the file may be anybody's: a slot counts only if it is whole, and what each process
// holds, and the limit, it knows by itself. Where the file was cut off or overwritten, who claims
// next mends the head and the slots of the dead; a living engine mends its own when it next claims
// or gives back, and until then nobody is told that there is room.
//
// Threads: all members from any thread.
// Ownership: owns its slot; the file stays for the others, and for the next. Borrows the clock.
#ifndef KVCORE_CACHE_CARD_BUDGET_H_
#define KVCORE_CACHE_CARD_BUDGET_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/peer_log.h"
#include "kvcore/base/status.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/cache/page_backend.h"
#include "kvcore/cache/shared_file.h"

namespace kv {

class CardBudget {
 public:
  static constexpr int kSlots = 64;

  // Joins the budget of this name, or makes it. kFailedPrecondition: it has another limit, or is
  // another user's. kProtocol: a file of this name is no budget. kUnavailable: all slots have
  // living owners.
  static Result<std::unique_ptr<CardBudget>> join(const std::string& path, std::int64_t limit_bytes,
                                                  const Clock& clock, LogSink log);
  ~CardBudget();  // gives back what it still has, not so in a forked child

  CardBudget(const CardBudget&) = delete;
  CardBudget& operator=(const CardBudget&) = delete;

  // Not fine: nothing was taken. kOutOfMemory: there is no room; when several claims meet within
  // microseconds near the limit, all of them may miss although there was room for one. kProtocol:
  // the file is damaged, so that nobody can tell. kInvalidArgument: less than 0.
  // kFailedPrecondition: in a forked child, whose slot is its parent's.
  Status claim(std::int64_t bytes) KV_EXCLUDES(mutex_);
  // kInvalidArgument, nothing done: less than 0, or more than it has.
  Status give_back(std::int64_t bytes) KV_EXCLUDES(mutex_);
  std::int64_t limit() const { return limit_; }
  // Of all engines. kProtocol: as for claim(). Above all numbers: the largest.
  Result<std::int64_t> claimed() const;
  // Of this one.
  std::int64_t own() const KV_EXCLUDES(mutex_);
  // Removes the file, for the last one to leave; others that still have it keep theirs.
  Status unlink() { return file_.unlink(); }

 private:
  CardBudget(SharedFile file, std::int64_t limit, int slot, const Clock& clock, LogSink log);
  Status wrong(Code code, std::int64_t bytes, const std::string& text) const;
  Status overwritten(const std::string& what) const;
  // Once, without looking for dead engines.
  Status try_claim(std::int64_t bytes) KV_EXCLUDES(mutex_);
  // The own slot, by so much more or less.
  Status add(std::int64_t bytes) KV_EXCLUDES(mutex_);
  Status write_slot(int slot, std::int64_t bytes);
  // Empties the slots of dead engines, and mends what was damaged of them.
  void reclaim() KV_EXCLUDES(mutex_);

  SharedFile file_;
  const std::int64_t limit_;
  const int slot_;
  const pid_t maker_ = ::getpid();
  mutable Mutex mutex_;  // also for the locks of the file, which belong to the whole process
  std::int64_t own_ KV_GUARDED_BY(mutex_) = 0;
  PeerLog log_;
};

// Pages within a budget: mapping claims before, unmapping gives back after. Borrows both.
class BudgetedPages final : public PageBackend {
 public:
  // `page_bytes`: of memory behind a page, all layers and buffers.
  BudgetedPages(PageBackend& pages, CardBudget& budget, std::int64_t page_bytes)
      : pages_(pages), budget_(budget), page_bytes_(page_bytes) {}

  // Without room in the budget: kOutOfMemory, nothing done.
  Done map(const std::vector<std::int64_t>& pages) override;
  Done unmap(const std::vector<std::int64_t>& pages) override;
  bool needs_idle() const override { return pages_.needs_idle(); }

 private:
  void give_back(const Done& done, std::size_t pages);

  PageBackend& pages_;
  CardBudget& budget_;
  const std::int64_t page_bytes_;
};

}  // namespace kv

#endif  // KVCORE_CACHE_CARD_BUDGET_H_
