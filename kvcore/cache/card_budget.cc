#include "kvcore/cache/card_budget.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "kvcore/hook.h"

namespace kv {
namespace {

constexpr std::uint64_t kMagic = 0x6b762d6275642d32;  // "kv-bud-2"
constexpr int kAttempts = 16;  // of a claim that misses while others are at it, and of a look

// A slot that was cut off reads as zeros, and those are not whole.
struct Slot {
  std::int64_t bytes = 0, complement = ~std::int64_t{0};
  bool whole() const { return bytes >= 0 && complement == ~bytes; }
};

// As it lies in the file.
struct Layout {
  std::uint64_t magic = kMagic;
  std::int64_t limit = 0;
  std::array<Slot, CardBudget::kSlots> slots{};
};
constexpr std::size_t kHead = offsetof(Layout, slots);

Result<SharedFile> open_or_create(const std::string& path, const Layout& fresh) {
  const std::string_view contents(reinterpret_cast<const char*>(&fresh), sizeof fresh);
  for (;;) {
    auto file = SharedFile::open(path, sizeof(Layout), SharedFile::Owner::kThisUser);
    if (file.ok() || file.status().code() != Code::kNotFound) return file;
    auto made = SharedFile::create(path, contents, /*lock=*/false);
    if (made.ok() || made.status().code() != Code::kAlreadyExists) return made;
  }
}

}  // namespace

CardBudget::CardBudget(SharedFile file, std::int64_t limit, int slot, const Clock& clock,
                       LogSink log)
    : file_(std::move(file)), limit_(limit), slot_(slot), log_(clock, std::move(log), "budget: ") {}

Result<std::unique_ptr<CardBudget>> CardBudget::join(const std::string& path,
                                                     std::int64_t limit_bytes, const Clock& clock,
                                                     LogSink log) {
  constexpr const char* kOperation = "budget.join";
  if (limit_bytes < 0) {
    return Status::error(Code::kInvalidArgument, kOperation, std::to_string(limit_bytes), 0,
                         "expected 0 bytes or more");
  }
  Layout fresh;
  fresh.limit = limit_bytes;
  KV_ASSIGN_OR_RETURN(SharedFile file, open_or_create(path, fresh));
  Layout there;
  KV_RETURN_IF_ERROR(file.read(0, &there, kHead));
  if (there.magic != kMagic) {
    return Status::error(Code::kProtocol, kOperation, path, 0, "it is not a budget");
  }
  if (there.limit != limit_bytes) {
    return Status::error(Code::kFailedPrecondition, kOperation, path, 0,
                         "its limit is " + std::to_string(there.limit) + " bytes, not " +
                             std::to_string(limit_bytes));
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    if (!file.try_lock(slot)) continue;
    std::unique_ptr<CardBudget> joined(
        new CardBudget(std::move(file), limit_bytes, slot, clock, std::move(log)));
    KV_RETURN_IF_ERROR(joined->write_slot(slot, 0));  // a dead owner's
    return joined;
  }
  return Status::error(Code::kUnavailable, kOperation, path, 0,
                       "all " + std::to_string(kSlots) + " slots are taken");
}

CardBudget::~CardBudget() {
  if (maker_ == ::getpid()) static_cast<void>(write_slot(slot_, 0));  // nobody is left to tell
}

// ---- the books

Status CardBudget::wrong(Code code, std::int64_t bytes, const std::string& text) const {
  return Status::error(code, "budget.claim", std::to_string(bytes) + " bytes", 0, text);
}

Status CardBudget::overwritten(const std::string& what) const {
  return Status::error(Code::kProtocol, "budget", file_.path(), 0,
                       "somebody has overwritten " + what);
}

Status CardBudget::write_slot(int slot, std::int64_t bytes) {
  const Slot whole{bytes, ~bytes};
  return file_.write(kHead + static_cast<std::size_t>(slot) * sizeof whole, &whole, sizeof whole);
}

std::int64_t CardBudget::own() const {
  const MutexLock lock(mutex_);
  return own_;
}

Status CardBudget::add(std::int64_t bytes) {
  const MutexLock lock(mutex_);
  std::int64_t sum = 0;
  if (__builtin_add_overflow(own_, bytes, &sum) || sum < 0) {
    return wrong(bytes < 0 ? Code::kInvalidArgument : Code::kOutOfMemory, bytes,
                 "it has " + std::to_string(own_));
  }
  Status status = write_slot(slot_, sum);
  if (status.ok() || bytes < 0) own_ = sum;
  if (!status.ok()) log_.say(Severity::kWarning, status.to_string());
  return status;
}

Result<std::int64_t> CardBudget::claimed() const {
  Status damaged;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Layout all;
    KV_RETURN_IF_ERROR(file_.read(0, &all, sizeof all));
    std::int64_t sum = 0;
    int bad = -1;
    for (int slot = 0; slot < kSlots && bad < 0; ++slot) {
      const Slot& one = all.slots[static_cast<std::size_t>(slot)];
      if (!one.whole() && step<"budget.slot.check">(slot)) {
        step_done<"budget.slot.check">(slot);
        bad = slot;
      } else if (__builtin_add_overflow(sum, one.bytes, &sum)) {
        sum = std::numeric_limits<std::int64_t>::max();
      }
    }
    const bool head = all.magic == kMagic && all.limit == limit_;
    if (head && bad < 0) return sum;
    damaged = overwritten(head ? "slot " + std::to_string(bad) : "its head");
  }
  return damaged;
}

// ---- claiming

Status CardBudget::try_claim(std::int64_t bytes) {
  const auto no_room = [&] {
    return wrong(Code::kOutOfMemory, bytes,
                 "the card's budget of " + std::to_string(limit_) + " bytes is claimed");
  };
  if (bytes > limit_) return no_room();
  if (step<"budget.claim.add_first">(bytes)) {
    KV_RETURN_IF_ERROR(add(bytes));
    step_done<"budget.claim.add_first">(bytes);
    point<"budget.claim">(bytes);
    const auto all = claimed();
    if (all.ok() && *all <= limit_) return {};
    static_cast<void>(add(-bytes));  // the reason is what the caller wants to know
    return all.ok() ? no_room() : all.status();
  }
  // The defect: to look and to take are two steps, and others come in between.
  KV_ASSIGN_OR_RETURN(const std::int64_t all, claimed());
  point<"budget.claim">(bytes);
  return all <= limit_ - bytes ? add(bytes) : no_room();
}

Status CardBudget::claim(std::int64_t bytes) {
  if (bytes < 0) return wrong(Code::kInvalidArgument, bytes, "expected 0 or more");
  if (maker_ != ::getpid()) {
    return wrong(Code::kFailedPrecondition, bytes, "a forked child has no part of its own");
  }
  Status status = try_claim(bytes);
  if (status.ok()) return status;
  reclaim();
  for (int attempt = 1; attempt < kAttempts && !status.ok(); ++attempt) status = try_claim(bytes);
  return status;
}

Status CardBudget::give_back(std::int64_t bytes) {
  if (bytes < 0) return wrong(Code::kInvalidArgument, bytes, "expected 0 or more");
  return add(-bytes);
}

void CardBudget::reclaim() {
  std::int64_t emptied = 0;
  if (!step<"budget.reclaim_dead">(slot_)) return;
  Status damage;
  {
    const MutexLock lock(mutex_);
    Layout all;
    damage = file_.read(0, &all, sizeof all);
    if (!damage.ok()) {
      all.magic = 0;
      all.slots.fill(Slot{0, 0});
    }
    if (all.magic != kMagic || all.limit != limit_) {
      if (damage.ok()) damage = overwritten("its head");
      Layout fresh;
      fresh.limit = limit_;
      static_cast<void>(file_.write(0, &fresh, kHead));
    }
    for (int slot = 0; slot < kSlots; ++slot) {
      const Slot& one = all.slots[static_cast<std::size_t>(slot)];
      if (slot == slot_ || (one.whole() && one.bytes == 0) || !file_.try_lock(slot)) continue;
      if (!one.whole() && damage.ok()) damage = overwritten("slot " + std::to_string(slot));
      static_cast<void>(write_slot(slot, 0));
      file_.unlock(slot);
      ++emptied;
    }
  }
  if (!damage.ok()) log_.say(Severity::kWarning, damage.to_string() + ": mended");
  step_done<"budget.reclaim_dead">(slot_, emptied);
}

// ---- pages within a budget

void BudgetedPages::give_back(const Done& done, std::size_t pages) {
  const auto gone = done.status.ok()
                        ? static_cast<std::ptrdiff_t>(pages)
                        : std::count(done.states.begin(), done.states.end(), PageMap::kUnmapped);
  if (gone == 0 || !step<"budget.pages.give_back">(gone)) return;
  // In its own books it is given back whatever happens to the file; the budget says what did.
  static_cast<void>(budget_.give_back(gone * page_bytes_));
  step_done<"budget.pages.give_back">(gone);
}

PageBackend::Done BudgetedPages::map(const std::vector<std::int64_t>& pages) {
  const auto bytes = static_cast<std::int64_t>(pages.size()) * page_bytes_;
  if (Status status = budget_.claim(bytes); !status.ok()) {
    return {std::move(status), std::vector<PageMap>(pages.size(), PageMap::kUnmapped)};
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
