// Exported calls: virtual memory. None needs a context, and none looks at one: they go on working
// on threads without a context and after work has died (recorded).
#include <cstddef>
#include <cstdint>

#include "fakes/card/calls.h"
#include "fakes/card/cuda_abi.h"

namespace kv::card {
namespace {

// The properties that the card can serve: pinned memory on one of its devices.
CUresult check(const Card& card, const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!card.has_device(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const bool known = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                     prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

KVCARD_API CUresult cuMemGetAllocationGranularity(std::size_t* granularity,
                                                  const CUmemAllocationProp* prop, int option) {
  return call_card(Call::cuMemGetAllocationGranularity, option, [&](Card& card) {
    if (granularity == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                   option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult code = check(card, prop)) return code;
    *granularity = kPageSize;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t size,
                                        std::size_t alignment, CUdeviceptr /*hint*/,
                                        unsigned long long flags) {
  // The recorded driver did not honour a hint either.
  return call_card(Call::cuMemAddressReserve, key_of(size), [&](Card& card) {
    if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return card.space.reserve(size, alignment, address);
  });
}

KVCARD_API CUresult cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  return call_card(Call::cuMemAddressFree, key_of(address),
                   [&](Card& card) { return card.space.free_range(address, size); });
}

KVCARD_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                                const CUmemAllocationProp* prop, unsigned long long flags) {
  return call_card(Call::cuMemCreate, key_of(size), [&](Card& card) {
    if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult code = check(card, prop)) return code;
    return card.space.create(size, prop->location.id,
                             prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE, handle);
  });
}

KVCARD_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call_card(Call::cuMemRelease, key_of(handle),
                   [&](Card& card) { return card.space.release(handle); });
}

KVCARD_API CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return call_card(Call::cuMemMap, key_of(address), [&](Card& card) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return card.space.map(address, size, offset, handle);
  });
}

KVCARD_API CUresult cuMemUnmap(CUdeviceptr address, std::size_t size) {
  return call_card(Call::cuMemUnmap, key_of(address), [&](Card& card) {
    const CUresult code = card.space.unmap(address, size);
    if (code == CUDA_SUCCESS) card.streams.unmapped(address, size);
    return code;
  });
}

KVCARD_API CUresult cuMemSetAccess(CUdeviceptr address, std::size_t size,
                                   const CUmemAccessDesc* access, std::size_t count) {
  return call_card(Call::cuMemSetAccess, key_of(address), [&](Card& card) {
    if (access == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return card.space.set_access(address, size, access, count);
  });
}

KVCARD_API CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                   CUdeviceptr address) {
  return call_card(Call::cuMemGetAccess, key_of(address), [&](Card& card) {
    if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!card.has_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
    return card.space.get_access(address, location->id, flags);
  });
}

KVCARD_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                void* address) {
  return call_card(Call::cuMemRetainAllocationHandle, key_of(address), [&](Card& card) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return card.space.retain(reinterpret_cast<std::uintptr_t>(address), handle);
  });
}

KVCARD_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                           CUmemGenericAllocationHandle handle) {
  return call_card(Call::cuMemGetAllocationPropertiesFromHandle, key_of(handle), [&](Card& card) {
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return card.space.properties(handle, prop);
  });
}

KVCARD_API CUresult cuMemExportToShareableHandle(void* shareable,
                                                 CUmemGenericAllocationHandle handle, int type,
                                                 unsigned long long flags) {
  return call_card(Call::cuMemExportToShareableHandle, key_of(handle), [&](Card& card) {
    if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    return card.space.export_descriptor(handle, static_cast<int*>(shareable));
  });
}

KVCARD_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                   void* shareable, int type) {
  return call_card(Call::cuMemImportFromShareableHandle, key_of(shareable), [&](Card& card) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    // The descriptor is handed over as if it were a pointer.
    const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
    return card.space.import_descriptor(fd, handle);
  });
}

}  // namespace kv::card
