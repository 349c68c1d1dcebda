#include "kvcore/memory/kv_allocator.h"

#include <map>
#include <utility>

#include "kvcore/base/bounded_mutex.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/hook.h"
#include "kvcore/memory/kv_group.h"

namespace kv {
namespace {

class Allocator final : public KvAllocator {
 public:
  Allocator(Vmm& vmm, LogSink log) : vmm_(vmm), log_(std::move(log)) {}

  Status create_tensors(std::int64_t group, const KvShape& shape) override {
    const BoundedLock lock(mutex_);
    if (const auto known = groups_.find(group); known != groups_.end()) {
      return Status::error(
          known->second.usable() ? Code::kAlreadyExists : Code::kFailedPrecondition,
          "allocator.create_tensors", "group " + std::to_string(group), 0,
          known->second.usable() ? "it has tensors" : "an earlier one was not given back whole");
    }
    KV_ASSIGN_OR_RETURN(const std::size_t granularity, vmm_.granularity());
    KV_RETURN_IF_ERROR(check_shape(shape, granularity));
    const auto entry = groups_.try_emplace(group, vmm_, log_, group, shape).first;
    Status status = entry->second.reserve();
    if (entry->second.gone()) groups_.erase(entry);
    return status;
  }

  bool tensors_created(std::int64_t group) override {
    const BoundedLock lock(mutex_);
    const auto known = groups_.find(group);
    return known != groups_.end() && known->second.usable();
  }

  bool has_zero_page(std::int64_t group) override {
    const BoundedLock lock(mutex_);
    const auto known = groups_.find(group);
    return known != groups_.end() && known->second.shape().zero_page;
  }

  Result<std::vector<std::int64_t>> map(std::int64_t group,
                                        const std::vector<std::int64_t>& offsets) override {
    constexpr const char* kOperation = "allocator.map";
    BoundedLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(const KvGroup* asked, find(kOperation, group));
    KV_ASSIGN_OR_RETURN(const bool takes, asked->takes_zero_pages(offsets));
    if (takes && step<"allocator.map.wait_for_work">(group)) {
      const Status ended = wait_for_work(lock, kOperation, group);
      step_done<"allocator.map.wait_for_work">(group);
      KV_RETURN_IF_ERROR(ended);
    }
    KV_ASSIGN_OR_RETURN(KvGroup * found, find(kOperation, group));
    return found->map(offsets);
  }

  Status unmap(std::int64_t group, const std::vector<std::int64_t>& offsets) override {
    return take_off("allocator.unmap", group, offsets,
                    [&offsets](KvGroup& found) { return found.unmap(offsets); });
  }

  Status prepare_unmap(std::int64_t group, const std::vector<std::int64_t>& offsets,
                       std::string_view transaction) override {
    const BoundedLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.prepare_unmap", group));
    return found->prepare_unmap(offsets, transaction);
  }

  Status commit_unmap(std::int64_t group, std::string_view transaction) override {
    return take_off("allocator.commit_unmap", group, transaction,
                    [transaction](KvGroup& found) { return found.commit_unmap(transaction); });
  }

  Status abort_unmap(std::int64_t group, std::string_view transaction) override {
    const BoundedLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.abort_unmap", group));
    return found->abort_unmap(transaction);
  }

  Result<std::vector<PageMap>> page_states(std::int64_t group,
                                           const std::vector<std::int64_t>& offsets) override {
    const BoundedLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.page_states", group));
    return found->page_states(offsets);
  }

  Result<DeviceAddress> address(std::int64_t group, int layer, int buffer,
                                std::int64_t offset) override {
    const BoundedLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.address", group));
    return found->address(layer, buffer, offset);
  }

  Result<DeviceAddress> tensor(std::int64_t group, int layer) override {
    const BoundedLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.tensor", group));
    return found->tensor(layer);
  }

  KvCounts counts() override {
    const BoundedLock lock(mutex_);
    KvCounts counts;
    for (const auto& [id, group] : groups_) group.add_to(&counts);
    return counts;
  }

  Status release_all() override {
    const BoundedLock lock(mutex_);
    return release_groups();
  }

  Status release_all(Clock& clock, Time until) override {
    if (!mutex_.lock(clock, until, "allocator.release")) {
      return Status::error(Code::kDeadline, "allocator.release", {}, 0,
                           "somebody is still inside the driver");
    }
    const Status status = release_groups();
    mutex_.unlock();
    return status;
  }

 private:
  Status release_groups() KV_REQUIRES(mutex_) {
    bool pages = false;
    for (const auto& [id, group] : groups_) pages = pages || group.has_pages();
    if (pages) try_to_wait_for_work();
    Status first;
    for (auto entry = groups_.begin(); entry != groups_.end();) {
      const Status status = entry->second.release();
      if (first.ok()) first = status;
      entry = entry->second.gone() ? groups_.erase(entry) : std::next(entry);
    }
    return first;
  }

  Result<KvGroup*> find(const char* operation, std::int64_t group) KV_REQUIRES(mutex_) {
    const auto known = groups_.find(group);
    if (known == groups_.end()) {
      return Status::error(Code::kNotFound, operation, "group " + std::to_string(group), 0,
                           "it has no tensors");
    }
    return &known->second;
  }

  // Until all work on the device has ended: work that uses a page, or the zero page, while it goes
  // dies, and poisons the context. That may take long and is waited for without the lock, so that
  // others can go on meanwhile; nobody gives new work pages that they take away.
  Status wait_for_work(BoundedLock& lock, const char* operation,
                       std::int64_t group) KV_NO_THREAD_SAFETY_ANALYSIS {
    lock.unlock();
    const Status ended = vmm_.synchronize();
    lock.lock();
    if (ended.ok()) return {};
    return Status::error(ended.code(), operation, "group " + std::to_string(group), ended.native(),
                         ended.to_string());
  }

  // Unmaps, after all work on the device has ended.
  template <typename What, typename Deed>
  Status take_off(const char* operation, std::int64_t group, const What& what, const Deed& deed) {
    BoundedLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(const KvGroup* asked, find(operation, group));
    KV_ASSIGN_OR_RETURN(const bool takes, asked->takes_pages(what));
    if (takes && step<"allocator.unmap.wait_for_work">(group)) {
      const Status ended = wait_for_work(lock, operation, group);
      step_done<"allocator.unmap.wait_for_work">(group);
      KV_RETURN_IF_ERROR(ended);
    }
    KV_ASSIGN_OR_RETURN(KvGroup * found, find(operation, group));
    return deed(*found);
  }

  // Work in flight on pages that are taken away dies and poisons the context. A context that is
  // poisoned already cannot be waited for, and its memory must be given back all the same.
  void try_to_wait_for_work() {
    const Status status = vmm_.synchronize();
    if (!status.ok() && log_) {
      log_(Severity::kWarning,
           "allocator.release: going on without waiting for the device: " + status.to_string());
    }
  }

  Vmm& vmm_;
  const LogSink log_;
  BoundedMutex mutex_;
  std::map<std::int64_t, KvGroup> groups_ KV_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<KvAllocator> make_kv_allocator(Vmm& vmm, LogSink log) {
  return std::make_unique<Allocator>(vmm, std::move(log));
}

}  // namespace kv
