#include "kvcore/kv_allocator.h"

#include <map>
#include <utility>

#include "kvcore/kv_group.h"
#include "kvcore/thread_annotations.h"

namespace kv {
namespace {

constexpr int kMostLayers = 1 << 16;  // a bound against nonsense, far above any model

std::string shape_text(const KvShape& shape) {
  return std::to_string(shape.layers) + " layers of " + std::to_string(shape.tensor_bytes) +
         " bytes, " + std::to_string(shape.buffers) + " buffers, pages of " +
         std::to_string(shape.page_bytes);
}

Status check_shape(const KvShape& shape, std::size_t granularity) {
  std::string expected;
  if (shape.layers < 1 || shape.layers > kMostLayers) {
    expected = "layers from 1 to " + std::to_string(kMostLayers);
  } else if (shape.buffers != 1 && shape.buffers != 2) {
    expected = "1 or 2 buffers";
  } else if (shape.page_bytes == 0 || shape.page_bytes % granularity != 0) {
    expected = "pages in multiples of " + std::to_string(granularity) + " bytes";
  } else if (shape.tensor_bytes == 0 || shape.tensor_bytes > SIZE_MAX / 4 ||
             shape.tensor_bytes % (static_cast<std::size_t>(shape.buffers) * shape.page_bytes) !=
                 0) {
    expected = "tensor bytes in multiples of buffers * page bytes";
  } else {
    return {};
  }
  return Status::error(Code::kInvalidArgument, "allocator.create_tensors", shape_text(shape), 0,
                       "expected " + expected);
}

class PerLayerAllocator final : public KvAllocator {
 public:
  PerLayerAllocator(Vmm& vmm, LogSink log) : vmm_(vmm), log_(std::move(log)) {}

  Status create_tensors(std::int64_t group, const KvShape& shape) override {
    const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);
    const auto known = groups_.find(group);
    return known != groups_.end() && known->second.usable();
  }

  Result<std::vector<std::int64_t>> map(std::int64_t group,
                                        const std::vector<std::int64_t>& offsets) override {
    const MutexLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.map", group));
    return found->map(offsets);
  }

  Status unmap(std::int64_t group, const std::vector<std::int64_t>& offsets) override {
    const MutexLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.unmap", group));
    return found->unmap(offsets);
  }

  Status prepare_unmap(std::int64_t group, const std::vector<std::int64_t>& offsets,
                       std::string_view transaction) override {
    const MutexLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.prepare_unmap", group));
    return found->prepare_unmap(offsets, transaction);
  }

  Status commit_unmap(std::int64_t group, std::string_view transaction) override {
    const MutexLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.commit_unmap", group));
    return found->commit_unmap(transaction);
  }

  Status abort_unmap(std::int64_t group, std::string_view transaction) override {
    const MutexLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.abort_unmap", group));
    return found->abort_unmap(transaction);
  }

  Result<DeviceAddress> tensor(std::int64_t group, int layer) override {
    const MutexLock lock(mutex_);
    KV_ASSIGN_OR_RETURN(KvGroup * found, find("allocator.tensor", group));
    return found->tensor(layer);
  }

  KvCounts counts() override {
    const MutexLock lock(mutex_);
    KvCounts counts;
    for (const auto& [id, group] : groups_) group.add_to(&counts);
    return counts;
  }

  Status release_all() override {
    const MutexLock lock(mutex_);
    bool pages = false;
    for (const auto& [id, group] : groups_) pages = pages || group.has_pages();
    if (pages) wait_for_work();
    Status first;
    for (auto entry = groups_.begin(); entry != groups_.end();) {
      const Status status = entry->second.release();
      if (first.ok()) first = status;
      entry = entry->second.gone() ? groups_.erase(entry) : std::next(entry);
    }
    return first;
  }

 private:
  Result<KvGroup*> find(const char* operation, std::int64_t group) KV_REQUIRES(mutex_) {
    const auto known = groups_.find(group);
    if (known == groups_.end()) {
      return Status::error(Code::kNotFound, operation, "group " + std::to_string(group), 0,
                           "it has no tensors");
    }
    return &known->second;
  }

  // Work in flight on pages that are taken away dies and poisons the context. A context that is
  // poisoned already cannot be waited for, and its memory must be given back all the same.
  void wait_for_work() {
    const Status status = vmm_.synchronize();
    if (!status.ok() && log_) {
      log_(Severity::kWarning,
           "allocator.release: going on without waiting for the device: " + status.to_string());
    }
  }

  Vmm& vmm_;
  const LogSink log_;
  Mutex mutex_;
  std::map<std::int64_t, KvGroup> groups_ KV_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<KvAllocator> make_kv_allocator(Vmm& vmm, LogSink log) {
  return std::make_unique<PerLayerAllocator>(vmm, std::move(log));
}

}  // namespace kv
