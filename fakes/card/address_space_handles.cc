// The part of the address space that deals in handles: virtual-memory handles, descriptors, plain
// allocations and IPC.
#include <cstdio>
#include <string>
#include <utility>

#include "fakes/card/address_space.h"
#include "fakes/card/host_range.h"
#include "fakes/card/report.h"

namespace kv::card {
namespace {

// Handles look like addresses, as the real driver's do, and are never used twice, so that one given
// out and released can be told from an invented one.
constexpr CUmemGenericAllocationHandle kFirstHandle = 0x6b76'0000'0000;
constexpr CUmemGenericAllocationHandle kHandleStep = 0x100;

// Plain allocations are charged in these units (the real driver takes small ones from pages that
// they share, which no recorded fact depends on).
constexpr std::uint64_t kPlainUnit = std::uint64_t{64} << 10;

std::uint64_t shared_key(const Lease& lease) {
  return std::uint64_t{lease.allocation} << 32 | lease.generation;
}

}  // namespace

bool AddressSpace::was_given_out(CUmemGenericAllocationHandle handle) const {
  return handle >= kFirstHandle && (handle - kFirstHandle) % kHandleStep == 0 &&
         (handle - kFirstHandle) / kHandleStep < handles_given_out_;
}

// Called when no such handle lives.
void AddressSpace::die_of_handle(CUmemGenericAllocationHandle handle, const char* call) {
  const char* why =
      was_given_out(handle) ? "was released and is no longer mapped" : "was never given out";
  char text[32] = {};
  std::snprintf(text, sizeof text, "0x%llx", handle);
  die_of_bad_handle(std::string(call) + ": handle " + text + " " + why);
}

CUmemGenericAllocationHandle AddressSpace::add_handle(PhysicalPtr memory, bool exportable) {
  const CUmemGenericAllocationHandle handle = kFirstHandle + kHandleStep * handles_given_out_++;
  handles_[handle] = {std::move(memory), 1, 0, exportable};
  accounts_.count(&LedgerOwner::handles, 1);
  return handle;
}

CUresult AddressSpace::create(std::uint64_t size, int device, bool exportable,
                              CUmemGenericAllocationHandle* handle) {
  if (size == 0 || size % kPageSize != 0) return CUDA_ERROR_INVALID_VALUE;
  Lease lease;
  if (const CUresult code = accounts_.create(device, size, &lease)) return code;
  auto memory = std::make_shared<Physical>(accounts_, lease);
  const MutexLock lock(mutex_);
  if (exportable) shared_[shared_key(lease)] = memory;  // it may be imported here again
  *handle = add_handle(std::move(memory), exportable);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::release(CUmemGenericAllocationHandle handle) {
  PhysicalPtr given_back;
  {
    const MutexLock lock(mutex_);
    if (handle == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto found = handles_.find(handle);
    if (found == handles_.end()) {
      if (was_given_out(handle)) return CUDA_ERROR_INVALID_VALUE;
      die_of_handle(handle, "cuMemRelease");
    }
    if (found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.references == 0 && found->second.mappings == 0) {
      given_back = std::move(found->second.memory);
      handles_.erase(found);
    }
  }
  accounts_.count(&LedgerOwner::handles, -1);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::retain(CUdeviceptr address, CUmemGenericAllocationHandle* handle) {
  const MutexLock lock(mutex_);
  const auto mapping = at(address);
  if (mapping == mappings_.end() || mapping->second.handle == 0) return CUDA_ERROR_INVALID_VALUE;
  ++handles_[mapping->second.handle].references;
  accounts_.count(&LedgerOwner::handles, 1);
  *handle = mapping->second.handle;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* prop) {
  const MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = {};
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->requestedHandleTypes =
      found->second.exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  prop->location = {CU_MEM_LOCATION_TYPE_DEVICE,
                    static_cast<int>(found->second.memory->lease().device)};
  return CUDA_SUCCESS;
}

CUresult AddressSpace::export_descriptor(CUmemGenericAllocationHandle handle, int* fd) {
  PhysicalPtr memory;
  {
    const MutexLock lock(mutex_);
    const auto found = handles_.find(handle);
    if (found == handles_.end() || found->second.references == 0 || !found->second.exportable) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    memory = found->second.memory;
  }
  const CUresult code = accounts_.export_descriptor(memory->lease(), fd);
  if (code == CUDA_SUCCESS) accounts_.count(&LedgerOwner::exports, 1);
  return code;
}

CUresult AddressSpace::import_descriptor(int fd, CUmemGenericAllocationHandle* handle) {
  Lease lease;
  if (const CUresult code = accounts_.join_descriptor(fd, &lease)) return code;
  const MutexLock lock(mutex_);
  *handle = add_handle(share(lease), true);
  return CUDA_SUCCESS;
}

// The one holder in this process of memory that came from elsewhere.
PhysicalPtr AddressSpace::share(const Lease& lease) {
  std::weak_ptr<Physical>& known = shared_[shared_key(lease)];
  if (PhysicalPtr memory = known.lock()) {
    accounts_.leave(lease);
    return memory;
  }
  auto memory = std::make_shared<Physical>(accounts_, lease);
  known = memory;
  std::erase_if(shared_, [](const auto& entry) { return entry.second.expired(); });
  return memory;
}

// Finds an address for memory and maps it there, accessible to every device.
CUresult AddressSpace::place(PhysicalPtr memory, std::uint64_t size, CUcontext context,
                             std::uint64_t opens, CUdeviceptr* address) {
  const CUdeviceptr start = reserve_host_range(memory->lease().size + kPlainUnit, kPageSize);
  if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Mapping mapping;
  mapping.size = size;
  mapping.memory = std::move(memory);
  mapping.access.fill(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  mapping.opens = opens;
  mapping.context = context;
  mappings_.emplace(start, std::move(mapping));
  accounts_.count(opens > 0 ? &LedgerOwner::mappings : &LedgerOwner::allocations, 1);
  *address = start;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::allocate(std::uint64_t size, CUcontext context, int device,
                                CUdeviceptr* address) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t charged = (size + kPlainUnit - 1) / kPlainUnit * kPlainUnit;
  if (charged < size) return CUDA_ERROR_OUT_OF_MEMORY;
  Lease lease;
  if (const CUresult code = accounts_.create(device, charged, &lease)) return code;
  auto memory = std::make_shared<Physical>(accounts_, lease);
  const MutexLock lock(mutex_);
  return place(std::move(memory), size, context, 0, address);
}

CUresult AddressSpace::free(CUdeviceptr address) {
  PhysicalPtr given_back;
  {
    const MutexLock lock(mutex_);
    const auto mapping = mappings_.find(address);
    if (mapping == mappings_.end() || mapping->second.handle != 0 || mapping->second.opens > 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    given_back = take_away(mapping);
  }
  free_host_range(address, given_back->lease().size + kPlainUnit);
  accounts_.count(&LedgerOwner::allocations, -1);
  return CUDA_SUCCESS;
}

void AddressSpace::free_all_of(CUcontext context) {
  std::vector<CUdeviceptr> plain, opened;
  {
    const MutexLock lock(mutex_);
    for (auto& [address, mapping] : mappings_) {
      if (mapping.handle != 0 || mapping.context != context) continue;
      if (mapping.opens > 0) mapping.opens = 1;
      (mapping.opens > 0 ? opened : plain).push_back(address);
    }
  }
  for (const CUdeviceptr address : plain) free(address);
  for (const CUdeviceptr address : opened) ipc_close(address);
}

CUresult AddressSpace::ipc_name(CUdeviceptr address, AllocationName* name) {
  const MutexLock lock(mutex_);
  const auto mapping = at(address);
  if (mapping == mappings_.end() || mapping->second.handle != 0 || mapping->second.opens > 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *name = accounts_.name(mapping->second.memory->lease());
  name->size = mapping->second.size;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::ipc_open(const AllocationName& name, CUcontext context,
                                CUdeviceptr* address) {
  Lease lease;
  if (const CUresult code = accounts_.join(name, &lease)) return code;
  const MutexLock lock(mutex_);
  const PhysicalPtr memory = share(lease);
  if (memory->lease().created_here) return CUDA_ERROR_INVALID_CONTEXT;
  for (auto& [start, mapping] : mappings_) {
    if (mapping.memory == memory && mapping.opens > 0) {
      ++mapping.opens;
      *address = start;
      return CUDA_SUCCESS;
    }
  }
  return place(memory, name.size, context, 1, address);
}

CUresult AddressSpace::ipc_close(CUdeviceptr address) {
  PhysicalPtr given_back;
  {
    const MutexLock lock(mutex_);
    const auto mapping = mappings_.find(address);
    if (mapping == mappings_.end() || mapping->second.opens == 0) return CUDA_ERROR_INVALID_VALUE;
    if (--mapping->second.opens > 0) return CUDA_SUCCESS;
    given_back = take_away(mapping);
  }
  free_host_range(address, given_back->lease().size + kPlainUnit);
  accounts_.count(&LedgerOwner::mappings, -1);
  return CUDA_SUCCESS;
}

}  // namespace kv::card
