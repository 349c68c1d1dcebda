#include "fakes/worker/kv_caches.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kv::worker {
namespace {

Status no_cache(std::int64_t group, const char* why) {
  return Status::error(Code::kNotFound, "cache", "group " + std::to_string(group), 0, why);
}

// What is mapped goes back, also what an earlier attempt could not give back.
Status give_all_back(KvCache& cache) {
  KV_RETURN_IF_ERROR(cache.blocks->close());
  KV_RETURN_IF_ERROR(cache.pages->trim());
  return cache.spec.removes_budget && cache.budget != nullptr ? cache.budget->unlink() : Status();
}

}  // namespace

KvCaches::KvCaches(KvAllocator& allocator, const KvShape& shape, Nanos drain_limit, Clock& clock,
                   LogSink log)
    : allocator_(allocator),
      shape_(shape),
      drain_limit_(drain_limit),
      clock_(clock),
      log_(std::move(log)) {}

Status KvCaches::build(KvCache* cache) {
  KvCacheSpec& spec = cache->spec;
  PageOptions& options = spec.pages;
  options.page_bytes = static_cast<std::int64_t>(spec.page_bytes) * shape_.layers * shape_.buffers;
  if (!allocator_.tensors_created(spec.group)) return no_cache(spec.group, "it has no tensors");
  KV_RETURN_IF_ERROR(options.validate());
  if (!spec.record.empty()) {
    KV_ASSIGN_OR_RETURN(
        cache->record,
        MemInfoSegment::make(spec.record, options.pages * options.page_bytes, clock_, log_));
    options.record = cache->record.get();
  }
  PageBackend* backend = &cache->local.emplace(allocator_, spec.group, spec.page_bytes);
  if (!spec.budget.empty()) {
    KV_ASSIGN_OR_RETURN(cache->budget,
                        CardBudget::join(spec.budget, spec.budget_bytes, clock_, log_));
    backend = &cache->budgeted.emplace(*backend, *cache->budget, options.page_bytes);
  }
  KV_ASSIGN_OR_RETURN(cache->pages, PageAllocator::make(options, *backend, clock_, log_));
  const CacheOptions blocks{spec.page_bytes, spec.block_bytes, options.pages, spec.null_block};
  KV_ASSIGN_OR_RETURN(cache->blocks, KvCacheManager::make(blocks, *cache->pages));
  return {};
}

void KvCaches::undo(KvCache* cache) {
  const auto say = [this](const Status& undone) {
    if (!undone.ok()) log_(Severity::kError, "cache: " + undone.to_string());
  };
  if (cache->pages != nullptr) {
    cache->pages->stop();
    say(cache->pages->trim());  // what the keeper has mapped meanwhile
  }
  if (cache->spec.removes_budget && cache->budget != nullptr) say(cache->budget->unlink());
}

Status KvCaches::make(KvCacheSpec spec) {
  const std::int64_t group = spec.group;
  if (spec.page_bytes == 0) spec.page_bytes = shape_.page_bytes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!caches_.try_emplace(group).second) {
      return Status::error(Code::kAlreadyExists, "cache", "group " + std::to_string(group), 0,
                           "it has a cache, or one is being made");
    }
  }
  auto cache = std::make_shared<KvCache>();
  cache->spec = std::move(spec);
  const Status status = build(cache.get());
  if (!status.ok()) undo(cache.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status.ok()) {
    caches_[group].cache = std::move(cache);
  } else {
    caches_.erase(group);
  }
  return status;
}

Status KvCaches::with(std::int64_t group, const std::function<Status(KvCache&)>& use) {
  std::shared_ptr<KvCache> cache;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = caches_.find(group);
    if (found == caches_.end() || found->second.cache == nullptr) {
      return no_cache(group, "it has no cache");
    }
    if (found->second.closing) return no_cache(group, "its cache is being closed");
    cache = found->second.cache;
  }
  return use(*cache);
}

StopResult KvCaches::close(std::int64_t group, Time until, Status* why) {
  std::shared_ptr<KvCache> cache;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = caches_.find(group);
    if (found == caches_.end()) return StopResult::kDone;
    if (found->second.cache == nullptr) return StopResult::kNotDrained;  // it is being made
    found->second.closing = true;
    cache = found->second.cache;
  }
  const std::lock_guard<std::mutex> closing(cache->closing);
  cache->blocks->stop();
  if (!cache->pages->stop(std::max(until - clock_.now(), Nanos(0)))) {
    *why = Status::error(Code::kDeadline, "cache.close", "group " + std::to_string(group), 0,
                         "somebody is still inside the driver");
    return StopResult::kNotDrained;
  }
  *why = give_all_back(*cache);
  if (!why->ok()) return StopResult::kFailed;
  const std::lock_guard<std::mutex> lock(mutex_);
  caches_.erase(group);
  return StopResult::kDone;
}

StopResult KvCaches::close(std::int64_t group, Status* why) {
  return close(group, deadline_after(clock_.now(), drain_limit_), why);
}

StopResult KvCaches::close_all(Status* why) {
  std::vector<std::int64_t> groups;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [group, entry] : caches_) groups.push_back(group);
  }
  const Time until = deadline_after(clock_.now(), drain_limit_);
  StopResult worst = StopResult::kDone;
  for (const std::int64_t group : groups) {
    Status here;
    const StopResult result = close(group, until, &here);
    if (result == StopResult::kDone || worst != StopResult::kDone) continue;
    worst = result;
    *why = here;
  }
  return worst;
}

}  // namespace kv::worker
