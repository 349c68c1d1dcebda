#include "fakes/limbo/limbo.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvcore/hook.h"

namespace kv {

// 4 KiB, so that MALLOC_PERTURB_ alone decides what a read after the free finds: smaller pieces lie
// in a cache of the allocator that does not fill them, much larger ones leave the address space.
// What is read lies in the middle: the allocator keeps its own accounts at both ends.
struct Limbo::Record {
  std::array<char, 2048> before{};
  const std::size_t* bytes = nullptr;
  std::array<char, 2040> after{};
};

Limbo::~Limbo() {
  const MutexLock lock(mu_);
  for (const auto& [address, tensor] : tensors_) delete tensor.record;
}

Result<DeviceAddress> Limbo::allocate(std::size_t bytes) {
  KV_ASSIGN_OR_RETURN(const DeviceAddress address, vmm_.allocate(bytes));
  const MutexLock lock(mu_);
  tensors_[address].bytes = bytes;
  return address;
}

Status Limbo::free(DeviceAddress address) {
  Tensors::node_type tensor;
  {
    const MutexLock lock(mu_);
    const auto found = tensors_.find(address);
    if (found == tensors_.end() || found->second.record != nullptr) {
      return Status::error(Code::kInvalidArgument, "limbo.free", {}, 0, "no tensor is there");
    }
    if (found->second.shares > 0) {
      static_assert(sizeof(Record) == 4096);
      found->second.record = new Record;
      found->second.record->bytes = &found->second.bytes;
      return {};
    }
    tensor = tensors_.extract(found);
  }
  return give_back(std::move(tensor));
}

// Out of the books before the driver can give the address to somebody else.
Status Limbo::give_back(Tensors::node_type tensor) {
  Status status = vmm_.free(tensor.key());
  if (status.ok()) {
    delete tensor.mapped().record;
    return {};
  }
  const MutexLock lock(mu_);
  tensors_.insert(std::move(tensor));
  return status;
}

Result<ShareHandle> Limbo::share(DeviceAddress address) {
  KV_ASSIGN_OR_RETURN(const ShareHandle handle, vmm_.share(address));
  const MutexLock lock(mu_);
  ++tensors_[address].shares;
  return handle;
}

Status Limbo::unshare(DeviceAddress address) {
  Tensors::node_type tensor;
  {
    const MutexLock lock(mu_);
    const auto found = tensors_.find(address);
    if (found == tensors_.end() || found->second.shares == 0) {
      return Status::error(Code::kInvalidArgument, "limbo.unshare", {}, 0, "no share of it is out");
    }
    if (--found->second.shares > 0 || found->second.record == nullptr) return {};
    tensor = tensors_.extract(found);
  }
  return give_back(std::move(tensor));
}

std::size_t Limbo::kept() const {
  const MutexLock lock(mu_);
  std::size_t bytes = 0;
  for (const auto& [address, tensor] : tensors_)
    bytes += tensor.record != nullptr ? tensor.bytes : 0;
  return bytes;
}

std::size_t Limbo::at_exit() {
  std::vector<Record*> limbo;
  {
    const MutexLock lock(mu_);
    for (auto& [address, tensor] : tensors_) {
      if (tensor.record != nullptr) limbo.push_back(std::exchange(tensor.record, nullptr));
    }
  }
  if (limbo.empty()) return 0;
  note<"limbo.warning">(static_cast<std::int64_t>(limbo.size()));
  if (log_) {
    log_(Severity::kWarning, "limbo: the process ends before its readers gave back " +
                                 std::to_string(limbo.size()) + " shared tensors");
  }
  // The mistake itself: one part of the framework goes down before another that looks into it.
  for (Record* record : limbo) delete record;
  std::size_t bytes = 0;
  for (const Record* freed : limbo) {
    const std::size_t* const volatile* inside = &freed->bytes;  // read, whatever the compiler knows
    bytes += **inside;
  }
  return bytes;
}

}  // namespace kv
