#include "kvcore/cache/card_budget.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "kvcore/hook.h"

namespace kv {
namespace {

constexpr std::uint64_t kMagic = 0x6b762d6275642d31;  // "kv-bud-1"
constexpr int kAttempts = 16;  // of a claim that misses while others are at it

struct alignas(64) Slot {
  std::atomic<std::int64_t> bytes;
};

struct Layout {
  std::uint64_t magic;
  std::int64_t limit;
  std::array<Slot, CardBudget::kSlots> slots;
};

Layout& layout(const SharedFile& file) {
  return *static_cast<Layout*>(file.data());
}

std::atomic<std::int64_t>& slot_bytes(const SharedFile& file, int slot) {
  return layout(file).slots[static_cast<std::size_t>(slot)].bytes;
}

Result<SharedFile> open_or_create(const std::string& path, std::int64_t limit) {
  for (;;) {
    auto file = SharedFile::open(path, sizeof(Layout));
    if (file.ok() && layout(*file).magic == kMagic) return file;
    if (file.ok()) {
      return Status::error(Code::kProtocol, "budget.join", path, 0, "it is not a budget");
    }
    if (file.status().code() != Code::kNotFound) return file.status();
    auto made = SharedFile::create(path, sizeof(Layout), /*lock=*/false, [limit](void* data) {
      static_cast<Layout*>(data)->magic = kMagic;
      static_cast<Layout*>(data)->limit = limit;
    });
    if (made.ok() || made.status().code() != Code::kAlreadyExists) return made;
  }
}

}  // namespace

Result<std::unique_ptr<CardBudget>> CardBudget::join(const std::string& path,
                                                     std::int64_t limit_bytes) {
  if (limit_bytes < 0) {
    return Status::error(Code::kInvalidArgument, "budget.join", std::to_string(limit_bytes), 0,
                         "expected 0 bytes or more");
  }
  KV_ASSIGN_OR_RETURN(SharedFile file, open_or_create(path, limit_bytes));
  if (layout(file).limit != limit_bytes) {
    return Status::error(Code::kFailedPrecondition, "budget.join", path, 0,
                         "its limit is " + std::to_string(layout(file).limit) + " bytes, not " +
                             std::to_string(limit_bytes));
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    if (!file.try_lock(slot)) continue;
    slot_bytes(file, slot).store(0, std::memory_order_seq_cst);  // a dead owner's
    return std::unique_ptr<CardBudget>(new CardBudget(std::move(file), slot));
  }
  return Status::error(Code::kUnavailable, "budget.join", path, 0,
                       "all " + std::to_string(kSlots) + " slots are taken");
}

CardBudget::~CardBudget() {
  if (maker_ != ::getpid()) return;
  slot_bytes(file_, slot_).store(0, std::memory_order_seq_cst);
}

std::int64_t CardBudget::limit() const {
  return layout(file_).limit;
}

std::int64_t CardBudget::own() const {
  return slot_bytes(file_, slot_).load(std::memory_order_seq_cst);
}

std::int64_t CardBudget::claimed() const {
  std::int64_t sum = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    sum += slot_bytes(file_, slot).load(std::memory_order_seq_cst);
  }
  return sum;
}

bool CardBudget::try_claim(std::int64_t bytes) {
  std::atomic<std::int64_t>& mine = slot_bytes(file_, slot_);
  if (step<"budget.claim.add_first">(bytes)) {
    mine.fetch_add(bytes, std::memory_order_seq_cst);
    step_done<"budget.claim.add_first">(bytes);
    point<"budget.claim">(bytes);
    if (claimed() <= limit()) return true;
    mine.fetch_sub(bytes, std::memory_order_seq_cst);
    return false;
  }
  // The defect: to look and to take are two steps, and others come in between.
  const bool room = claimed() + bytes <= limit();
  point<"budget.claim">(bytes);
  if (room) mine.fetch_add(bytes, std::memory_order_seq_cst);
  return room;
}

bool CardBudget::claim(std::int64_t bytes) {
  if (try_claim(bytes)) return true;
  reclaim();
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    if (try_claim(bytes)) return true;
  }
  return false;
}

void CardBudget::give_back(std::int64_t bytes) {
  slot_bytes(file_, slot_).fetch_sub(bytes, std::memory_order_seq_cst);
}

void CardBudget::reclaim() {
  std::int64_t emptied = 0;
  if (!step<"budget.reclaim_dead">(slot_)) return;
  const MutexLock lock(mutex_);
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot == slot_ || slot_bytes(file_, slot).load(std::memory_order_seq_cst) == 0) continue;
    if (!file_.try_lock(slot)) continue;
    slot_bytes(file_, slot).store(0, std::memory_order_seq_cst);
    file_.unlock(slot);
    ++emptied;
  }
  step_done<"budget.reclaim_dead">(slot_, emptied);
}

// ---- pages within a budget

void BudgetedPages::give_back(const Done& done, std::size_t pages) {
  const auto gone = done.status.ok()
                        ? static_cast<std::ptrdiff_t>(pages)
                        : std::count(done.states.begin(), done.states.end(), PageMap::kUnmapped);
  if (gone == 0 || !step<"budget.pages.give_back">(gone)) return;
  budget_.give_back(gone * page_bytes_);
  step_done<"budget.pages.give_back">(gone);
}

PageBackend::Done BudgetedPages::map(const std::vector<std::int64_t>& pages) {
  const auto bytes = static_cast<std::int64_t>(pages.size()) * page_bytes_;
  if (!budget_.claim(bytes)) {
    return {Status::error(
                Code::kOutOfMemory, "budget.claim", std::to_string(bytes) + " bytes", 0,
                "the card's budget of " + std::to_string(budget_.limit()) + " bytes is claimed"),
            std::vector<PageMap>(pages.size(), PageMap::kUnmapped)};
  }
  Done done = pages_.map(pages);
  if (!done.status.ok()) give_back(done, pages.size());
  return done;
}

PageBackend::Done BudgetedPages::unmap(const std::vector<std::int64_t>& pages) {
  Done done = pages_.unmap(pages);
  give_back(done, pages.size());
  return done;
}

}  // namespace kv
