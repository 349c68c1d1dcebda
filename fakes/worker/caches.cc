#include "fakes/worker/caches.h"

#include <stdexcept>
#include <utility>

namespace kv::worker {

Caches::Caches(Vmm& vmm, Clock& clock, LogSink log, const RuntimeConfig& config)
    : vmm_(vmm),
      clock_(clock),
      log_(log),
      config_(config),
      limbo_(vmm, std::move(log)),
      driver_(vmm) {}

Status Caches::start_transfer(bool framework) {
  KV_ASSIGN_OR_RETURN(socket_, transfer_socket(config_.socket_root, config_.ipc_name,
                                               static_cast<int>(config_.rank)));
  TransferOptions options;
  options.socket_path = socket_;
  options.socket_root = config_.socket_root;
  options.drain_limit = config_.drain_limit;
  CacheMemory& memory =
      framework ? static_cast<CacheMemory&>(limbo_) : static_cast<CacheMemory&>(driver_);
  KV_ASSIGN_OR_RETURN(transfer_, CacheTransfer::start(std::move(options), memory, clock_, log_));
  return {};
}

CacheTransfer& Caches::transfer() {
  if (transfer_ == nullptr) throw std::runtime_error("this process has no role of a producer");
  return *transfer_;
}

Status Caches::with_reader(std::int64_t rank, const std::function<Status(CacheReader&)>& use) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<CacheReader>& reader = readers_[rank];
  if (reader == nullptr) {
    KV_ASSIGN_OR_RETURN(
        const std::string path,
        transfer_socket(config_.socket_root, config_.ipc_name, static_cast<int>(rank)));
    KV_ASSIGN_OR_RETURN(reader, CacheReader::connect(path, vmm_, clock_));
  }
  return use(*reader);
}

StopResult Caches::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [rank, reader] : readers_) {
      if (reader == nullptr) continue;
      const Status status = reader->release_all();
      if (!status.ok()) log_(Severity::kError, "reader: " + status.to_string());
      if (reader->open_caches() > 0) return StopResult::kFailed;
    }
    readers_.clear();
  }
  return transfer_ == nullptr ? StopResult::kDone : transfer_->shutdown();
}

void Caches::framework_ends() {
  static_cast<void>(limbo_.at_exit());
}

std::int64_t page_stamp(std::int64_t value, std::size_t page) {
  return value + static_cast<std::int64_t>(page);
}

Status write_stamps(Vmm& vmm, DeviceAddress address, std::size_t bytes, std::int64_t value) {
  for (std::size_t page = 0; page < bytes / kCacheUnit; ++page) {
    const std::int64_t stamp = page_stamp(value, page);
    KV_RETURN_IF_ERROR(vmm.copy_to_device(address + page * kCacheUnit, &stamp, sizeof stamp));
  }
  return {};
}

Status verify_stamps(Vmm& vmm, DeviceAddress address, std::size_t bytes, std::int64_t value) {
  for (std::size_t page = 0; page < bytes / kCacheUnit; ++page) {
    std::int64_t stamp = 0;
    KV_RETURN_IF_ERROR(vmm.copy_from_device(&stamp, address + page * kCacheUnit, sizeof stamp));
    if (stamp == page_stamp(value, page)) continue;
    return Status::error(Code::kInternal, "verify", "page " + std::to_string(page), 0,
                         "its stamp is " + std::to_string(stamp) + ", expected " +
                             std::to_string(page_stamp(value, page)));
  }
  return {};
}

}  // namespace kv::worker
