#include "kvcore/cache/page_allocator.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "kvcore/hook.h"

namespace kv {

Status PageOptions::validate() const {
  const auto wrong = [](const char* field, std::int64_t value, const char* expected) {
    return Status::error(Code::kInvalidArgument, "pages.options",
                         std::string(field) + " " + std::to_string(value), 0,
                         std::string("expected ") + expected);
  };
  if (pages < 1) return wrong("pages", pages, "at least 1");
  if (page_bytes < 1) return wrong("page_bytes", page_bytes, "at least 1");
  if (pages > std::numeric_limits<std::int64_t>::max() / page_bytes) {
    return wrong("page_bytes", page_bytes, "so few that all pages' are below 2^63");
  }
  if (low < 0) return wrong("low", low, "0 or more");
  if (high < low) return wrong("high", high, "at least the low mark");
  if (wait_limit.count() < 0) return wrong("wait_limit", wait_limit.count(), "0 ns or more");
  return {};
}

const char* limit_result_name(LimitResult result) {
  constexpr std::array<const char*, 4> kNames{"applied", "deferred", "stale", "conflict"};
  return kNames.at(static_cast<std::size_t>(result));
}

PageAllocator::PageAllocator(const PageOptions& options, PageBackend& backend, Clock& clock,
                             LogSink log)
    : options_(options),
      backend_(backend),
      clock_(clock),
      log_(std::move(log)),
      wishes_(clock, log_, "pages: "),
      use_(static_cast<std::size_t>(options.pages), Use::kFree),
      wanted_(options.pages),
      asked_(options.pages) {
  for (std::int64_t page = 0; page < options.pages; ++page) free_.insert(free_.end(), page);
  counts_[static_cast<std::size_t>(Use::kFree)] = options.pages;
}

Result<std::unique_ptr<PageAllocator>> PageAllocator::make(const PageOptions& options,
                                                           PageBackend& backend, Clock& clock,
                                                           LogSink log) {
  KV_RETURN_IF_ERROR(options.validate());
  if (options.keeper && backend.needs_idle() && step<"pages.keeper.refuse_zero_page">()) {
    step_done<"pages.keeper.refuse_zero_page">();
    return Status::error(Code::kInvalidArgument, "pages.options", "keeper", 0,
                         "the pages have a zero page, which work may read while a keeper takes it "
                         "off: expected no keeper");
  }
  std::unique_ptr<PageAllocator> made(new PageAllocator(options, backend, clock, std::move(log)));
  KV_RETURN_IF_ERROR(made->start());
  return made;
}

PageAllocator::~PageAllocator() {
  stop();
}

void PageAllocator::say(Severity severity, const std::string& line) const {
  if (log_) log_(severity, "pages: " + line);
}

// ---- states

void PageAllocator::move(std::int64_t page, Use to) {
  const auto set_of = [this](Use use) KV_NO_THREAD_SAFETY_ANALYSIS -> std::set<std::int64_t>* {
    switch (use) {
      case Use::kFree:
        return &free_;
      case Use::kReady:
        return &ready_;
      case Use::kWithheld:
        return &withheld_;
      default:
        return nullptr;
    }
  };
  Use& use = use_[static_cast<std::size_t>(page)];
  if (auto* from = set_of(use)) from->erase(page);
  if (auto* into = set_of(to)) into->insert(page);
  --counts_[static_cast<std::size_t>(use)];
  ++counts_[static_cast<std::size_t>(to)];
  use = to;
}

void PageAllocator::move(const Pages& pages, Use to) {
  for (const std::int64_t page : pages) move(page, to);
}

PageAllocator::Pages PageAllocator::first_of(const std::set<std::int64_t>& set,
                                             std::int64_t n) const {
  const auto size = std::min<std::int64_t>(n, static_cast<std::int64_t>(set.size()));
  return {set.begin(), std::next(set.begin(), std::max<std::int64_t>(size, 0))};
}

void PageAllocator::set_free(std::int64_t page) {
  move(page, total() > wanted_ ? Use::kWithheld : Use::kFree);
}

void PageAllocator::settle(const Pages& pages, const std::vector<PageMap>& states) {
  for (std::size_t i = 0; i < pages.size(); ++i) {
    switch (states[i]) {
      case PageMap::kUnmapped:
        set_free(pages[i]);
        break;
      case PageMap::kMapped:
        move(pages[i], Use::kReady);
        break;
      case PageMap::kQuarantined:
        move(pages[i], Use::kQuarantined);
        break;
    }
  }
}

void PageAllocator::publish() {
  if (options_.record == nullptr) return;
  // What the card holds and nobody else can have: also what is on its way, or lost.
  const std::int64_t held = count(Use::kUsed) + count(Use::kTransit) + count(Use::kQuarantined);
  options_.record->publish(total() * options_.page_bytes, held * options_.page_bytes,
                           count(Use::kReady) * options_.page_bytes, revision_);
}

void PageAllocator::wake() {
  changed_.notify_all();
  if (has_work()) need_.notify_one();
}

PageCounts PageAllocator::counts() const {
  const MutexLock lock(mutex_);
  PageCounts counts;
  counts.free = count(Use::kFree);
  counts.ready = count(Use::kReady);
  counts.used = count(Use::kUsed);
  counts.transit = count(Use::kTransit);
  counts.quarantined = count(Use::kQuarantined);
  counts.withheld = count(Use::kWithheld);
  counts.total = total();
  counts.wanted = wanted_;
  return counts;
}

// ---- taking and giving back

// The lock is asked for and given up within; the analysis cannot follow the condition.
PageBackend::Done PageAllocator::ask_backend(MutexLock& lock, BackendCall call, const Pages& pages,
                                             void (*at)(std::int64_t),
                                             std::int64_t key) KV_NO_THREAD_SAFETY_ANALYSIS {
  ++inside_;
  const bool unlocked = step<"pages.backend.unlocked">();
  if (unlocked) lock.unlock();
  at(key);
  PageBackend::Done done = (backend_.*call)(pages);
  if (unlocked) {
    lock.lock();
    step_done<"pages.backend.unlocked">();
  }
  if (--inside_ == 0) changed_.notify_all();
  return done;
}

bool PageAllocator::wait_for_transit(MutexLock& lock, std::int64_t n) {
  const auto settled = [this, n]() KV_NO_THREAD_SAFETY_ANALYSIS {
    const std::int64_t there = count(Use::kFree) + count(Use::kReady);
    return stopping_ || there >= n || there + returning_ < n;
  };
  if (settled()) return true;
  Time until = kNever;
  if (step<"pages.take.wait_limit">(n)) {
    until = deadline_after(clock_.now(), options_.wait_limit);
    step_done<"pages.take.wait_limit">(n);
  }
  // The limit counts from before anybody can see that it runs.
  note<"pages.take.wait">(n);
  return clock_.wait(lock, changed_, until, "pages.take", settled);
}

Result<std::optional<std::vector<std::int64_t>>> PageAllocator::take(std::int64_t n) {
  constexpr const char* kOperation = "pages.take";
  const std::string object = std::to_string(n) + " pages";
  if (n < 0) {
    return Status::error(Code::kInvalidArgument, kOperation, object, 0, "expected 0 or more");
  }
  MutexLock lock(mutex_);
  look_for_wish();
  if (!wait_for_transit(lock, n)) {
    return Status::error(Code::kDeadline, kOperation, object, 0,
                         "pages in transit did not come back in time");
  }
  if (stopping_) return Status::error(Code::kCancelled, kOperation, object, 0, "stopping");
  shedding_failed_ = false;
  if (count(Use::kFree) + count(Use::kReady) < n) return std::optional<Pages>();
  Pages pages = first_of(ready_, n);
  const auto ready = static_cast<std::int64_t>(pages.size());
  const Pages fresh = first_of(free_, n - ready);
  move(pages, Use::kTransit);
  move(fresh, Use::kTransit);
  if (!fresh.empty()) {
    KV_ASSIGN_OR_RETURN(const bool mapped, map_for_caller(lock, fresh, pages));
    if (!mapped) return std::optional<Pages>();
  }
  pages.insert(pages.end(), fresh.begin(), fresh.end());
  move(pages, Use::kUsed);
  filling_ = filling_ || count(Use::kReady) < options_.low;
  changed();
  return std::optional<Pages>(std::move(pages));
}

Result<bool> PageAllocator::map_for_caller(MutexLock& lock, const Pages& fresh,
                                           const Pages& ready) {
  const PageBackend::Done done =
      ask_backend(lock, &PageBackend::map, fresh, &point<"pages.take.map">,
                  static_cast<std::int64_t>(fresh.size()));
  if (done.status.ok()) return true;
  if (step<"pages.take.put_back">()) {
    settle(fresh, done.states);
    move(ready, Use::kReady);
    step_done<"pages.take.put_back">();
  }
  changed();
  if (done.status.code() == Code::kOutOfMemory && step<"pages.take.miss">()) {
    step_done<"pages.take.miss">();
    return false;
  }
  return done.status;
}

Result<bool> PageAllocator::take_page(std::int64_t page) {
  constexpr const char* kOperation = "pages.take_page";
  const std::string object = "page " + std::to_string(page);
  if (page < 0 || page >= options_.pages) {
    return Status::error(Code::kInvalidArgument, kOperation, object, 0,
                         "pages are 0 to " + std::to_string(options_.pages - 1));
  }
  MutexLock lock(mutex_);
  Use& use = use_[static_cast<std::size_t>(page)];
  const auto settled = [this, &use]() KV_NO_THREAD_SAFETY_ANALYSIS {
    return stopping_ || use != Use::kTransit;
  };
  if (!settled() && !clock_.wait(lock, changed_, deadline_after(clock_.now(), options_.wait_limit),
                                 "pages.take_page", settled)) {
    return Status::error(Code::kDeadline, kOperation, object, 0, "it stayed in transit");
  }
  if (stopping_) return Status::error(Code::kCancelled, kOperation, object, 0, "stopping");
  if (use == Use::kFree) {
    move(page, Use::kTransit);
    KV_ASSIGN_OR_RETURN(const bool mapped, map_for_caller(lock, {page}, {}));
    if (!mapped) return false;
  } else if (use != Use::kReady) {
    return false;
  }
  move(page, Use::kUsed);
  filling_ = filling_ || count(Use::kReady) < options_.low;
  changed();
  return true;
}

Status PageAllocator::give_back(const Pages& pages) {
  MutexLock lock(mutex_);
  look_for_wish();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::int64_t page = pages[i];
    const bool inside = page >= 0 && page < options_.pages;
    if (inside && use_[static_cast<std::size_t>(page)] == Use::kUsed) {
      move(page, Use::kReady);
      continue;
    }
    const bool twice = std::count(pages.begin(), pages.begin() + static_cast<long>(i), page) > 0;
    for (std::size_t k = 0; k < i; ++k) move(pages[k], Use::kUsed);
    return Status::error(Code::kInvalidArgument, "pages.give_back", "page " + std::to_string(page),
                         0,
                         twice    ? "it is there twice"
                         : inside ? "it is not in use"
                                  : "pages are 0 to " + std::to_string(options_.pages - 1));
  }
  shedding_failed_ = false;
  changed();
  if (!options_.keeper && !stopping_) return shed_surplus(lock);
  return {};
}

Status PageAllocator::trim() {
  MutexLock lock(mutex_);
  return unmap_ready(lock, first_of(ready_, count(Use::kReady)));
}

// In transit while the backend is at it, so that a failure loses none.
Status PageAllocator::unmap_ready(MutexLock& lock, Pages pages) {
  if (pages.empty()) return {};
  move(pages, Use::kTransit);
  const auto size = static_cast<std::int64_t>(pages.size());
  returning_ += size;
  PageBackend::Done done =
      ask_backend(lock, &PageBackend::unmap, pages, &point<"pages.unmap">, size);
  returning_ -= size;
  if (done.status.ok()) {
    done.states.assign(pages.size(), PageMap::kUnmapped);
  } else if (step<"pages.unmap.keep">(size)) {
    step_done<"pages.unmap.keep">(size);
  } else {
    done.states.assign(pages.size(), PageMap::kUnmapped);  // the defect: gone from the books alone
  }
  settle(pages, done.states);
  changed();
  return done.status;
}

Status PageAllocator::shed_surplus(MutexLock& lock) {
  const std::int64_t n = surplus();
  if (n == 0) return {};
  // The highest numbers: what stays lies together, and a smaller limit cuts from above.
  Pages pages(ready_.rbegin(), std::next(ready_.rbegin(), n));
  return unmap_ready(lock, std::move(pages));
}

std::int64_t PageAllocator::surplus() const {
  const std::int64_t ready = count(Use::kReady);
  const std::int64_t beyond_limit = std::max<std::int64_t>(total() - wanted_, 0);
  return std::min(ready, std::max(ready - options_.high, beyond_limit));
}

// ---- the limit

void PageAllocator::apply_limit() {
  while (total() < wanted_ && !withheld_.empty()) move(*withheld_.begin(), Use::kFree);
  while (total() > wanted_ && !free_.empty()) move(*free_.rbegin(), Use::kWithheld);
}

LimitResult PageAllocator::accept_limit(std::int64_t pages, std::uint64_t revision) {
  const bool stale = revision < revision_;
  const bool conflict = revision == revision_ && pages != asked_;
  if ((stale || conflict) && step<"pages.limit.newest">(static_cast<std::int64_t>(revision))) {
    step_done<"pages.limit.newest">(static_cast<std::int64_t>(revision));
    return stale ? LimitResult::kStale : LimitResult::kConflict;
  }
  revision_ = revision;
  asked_ = pages;
  wanted_ = std::clamp<std::int64_t>(pages, 0, options_.pages);
  apply_limit();
  shedding_failed_ = false;
  note<"pages.limit.accepted">(static_cast<std::int64_t>(revision), pages);
  if (step<"pages.limit.publish">(static_cast<std::int64_t>(revision))) {
    publish();
    step_done<"pages.limit.publish">(static_cast<std::int64_t>(revision));
  }
  wake();
  return total() == wanted_ ? LimitResult::kApplied : LimitResult::kDeferred;
}

LimitResult PageAllocator::set_limit(std::int64_t pages, std::uint64_t revision) {
  point<"pages.limit.set">(static_cast<std::int64_t>(revision));
  MutexLock lock(mutex_);
  const LimitResult result = accept_limit(pages, revision);
  if (result != LimitResult::kDeferred || options_.keeper) return result;
  const Status status = shed_surplus(lock);
  if (!status.ok()) say(Severity::kWarning, "a smaller limit waits: " + status.to_string());
  return total() == wanted_ ? LimitResult::kApplied : LimitResult::kDeferred;
}

std::uint64_t PageAllocator::limit_revision() const {
  const MutexLock lock(mutex_);
  return revision_;
}

void PageAllocator::look_for_wish() {
  if (options_.record == nullptr) return;
  const auto wish = options_.record->take_wish();
  if (!wish) return;
  const std::uint64_t revision = wish->revision != 0 ? wish->revision : revision_ + 1;
  const LimitResult result = accept_limit(wish->bytes / options_.page_bytes, revision);
  wishes_.say(Severity::kInfo, "limit of " + std::to_string(wish->bytes) + " bytes, revision " +
                                   std::to_string(revision) + ": " + limit_result_name(result));
}

void PageAllocator::take_wish() {
  MutexLock lock(mutex_);
  look_for_wish();
  if (options_.keeper) return;
  const Status status = shed_surplus(lock);
  if (!status.ok()) say(Severity::kWarning, "a smaller limit waits: " + status.to_string());
}

}  // namespace kv
