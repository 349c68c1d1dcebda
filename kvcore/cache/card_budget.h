// One budget of device memory for several engines on a card. To check that there is room and to
// take it is one step, so that two engines never both get the last page; what a dead engine held
// goes back.
//
// Each process has a slot of its own in a shared file, and writes no other. A claim adds to the own
// slot first and looks at the sum of all then: of two that come at once at least one sees both, so
// the sum that stays is never above the limit. Nobody holds a lock, so a process that is stopped or
// killed in the middle stalls nobody; a slot whose owner is dead, which the kernel tells by the
// owner's file lock, is emptied by whoever misses for want of room.
//
// Threads: claim(), give_back(), claimed() from any thread.
// Ownership: owns its slot and mapping; the file stays for the others, and for the next.
#ifndef KVCORE_CACHE_CARD_BUDGET_H_
#define KVCORE_CACHE_CARD_BUDGET_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kvcore/cache/page_backend.h"
#include "kvcore/cache/shared_file.h"
#include "kvcore/base/status.h"
#include "kvcore/base/thread_annotations.h"

namespace kv {

class CardBudget {
 public:
  static constexpr int kSlots = 64;

  // Joins the budget of this name, or makes it. kFailedPrecondition: it has another limit.
  // kProtocol: a file of this name is no budget. kUnavailable: all slots have living owners.
  static Result<std::unique_ptr<CardBudget>> join(const std::string& path,
                                                  std::int64_t limit_bytes);
  ~CardBudget();  // gives back what it still has, not so in a forked child

  CardBudget(const CardBudget&) = delete;
  CardBudget& operator=(const CardBudget&) = delete;

  // False: there is no room, and nothing was taken. When several claims meet within microseconds
  // near the limit, all of them may miss although there was room for one.
  bool claim(std::int64_t bytes) KV_EXCLUDES(mutex_);
  void give_back(std::int64_t bytes);
  std::int64_t limit() const;
  // Of all engines, and of this one.
  std::int64_t claimed() const;
  std::int64_t own() const;
  // Removes the file, for the last one to leave; others that still have it keep theirs.
  Status unlink() { return file_.unlink(); }

 private:
  CardBudget(SharedFile file, int slot) : file_(std::move(file)), slot_(slot) {}
  // Once, without looking for dead engines.
  bool try_claim(std::int64_t bytes);
  // Empties the slots of dead engines.
  void reclaim() KV_EXCLUDES(mutex_);

  SharedFile file_;
  const int slot_;
  const pid_t maker_ = ::getpid();
  Mutex mutex_;  // for the locks of the file, which belong to the whole process
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
