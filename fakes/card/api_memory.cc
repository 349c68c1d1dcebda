// Exported calls: plain allocations, what is known of an address, IPC.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fakes/card/calls.h"
#include "fakes/card/cuda_abi.h"

namespace kv::card {
namespace {

constexpr char kIpcMagic[8] = {'k', 'v', 'c', 'a', 'r', 'd', 'i', '1'};

struct IpcHandle {
  char magic[8];
  AllocationName name;
  char unused[sizeof(CUipcMemHandle) - sizeof magic - sizeof name];
};
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));

template <typename Value>
CUresult put(void* data, Value value) {
  std::memcpy(data, &value, sizeof(Value));
  return CUDA_SUCCESS;
}

CUresult attribute(const Region& region, CUpointer_attribute which, CUdeviceptr address,
                   void* data) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put<void*>(data, region.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(data, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(data, region.start);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<bool>(data, false);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(data, region.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<bool>(data, region.plain);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, region.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<std::size_t>(data, region.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<bool>(data, true);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(data, region.exportable ? 1 : 0);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Waits for the context's work first, as the driver does before it takes plain memory away.
template <typename Take>
CUresult take_when_idle(Card& card, CUcontext context, Take take) {
  if (const CUresult code = card.streams.synchronize(context)) return code;
  return take();
}

}  // namespace

KVCARD_API CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t size) {
  return call_in_context(Call::cuMemAlloc, key_of(size), [&](Card& card, CUcontext context) {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return card.space.allocate(size, context, context->device, address);
  });
}

KVCARD_API CUresult cuMemFree_v2(CUdeviceptr address) {
  return call_in_context(Call::cuMemFree, key_of(address), [&](Card& card, CUcontext context) {
    if (address == 0) return CUDA_SUCCESS;
    return take_when_idle(card, context, [&] { return card.space.free(address); });
  });
}

KVCARD_API CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call_in_context(Call::cuMemGetInfo, 0, [&](Card& card, CUcontext context) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *free = card.accounts.free_bytes(context->device);
    *total = card.accounts.total_bytes(context->device);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, std::size_t* size,
                                            CUdeviceptr address) {
  return call_in_context(Call::cuMemGetAddressRange, key_of(address), [&](Card& card, CUcontext) {
    Region region;
    if (!card.space.find(address, &region)) return CUDA_ERROR_NOT_FOUND;
    if (start != nullptr) *start = region.start;
    if (size != nullptr) *size = region.size;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which,
                                          CUdeviceptr address) {
  return call_card(Call::cuPointerGetAttribute, key_of(address), [&](Card& card) {
    Region region;
    if (data == nullptr || !card.space.find(address, &region)) return CUDA_ERROR_INVALID_VALUE;
    return attribute(region, which, address, data);
  });
}

KVCARD_API CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return call_card(Call::cuIpcGetMemHandle, key_of(address), [&](Card& card) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    IpcHandle named = {};
    std::memcpy(named.magic, kIpcMagic, sizeof named.magic);
    if (const CUresult code = card.space.ipc_name(address, &named.name)) return code;
    std::memcpy(handle, &named, sizeof named);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                                          unsigned flags) {
  return call_in_context(Call::cuIpcOpenMemHandle, 0, [&](Card& card, CUcontext context) {
    IpcHandle named = {};
    std::memcpy(&named, &handle, sizeof named);
    if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        std::memcmp(named.magic, kIpcMagic, sizeof named.magic) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return card.space.ipc_open(named.name, context, address);
  });
}

KVCARD_API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return call_in_context(
      Call::cuIpcCloseMemHandle, key_of(address), [&](Card& card, CUcontext context) {
        return take_when_idle(card, context, [&] { return card.space.ipc_close(address); });
      });
}

}  // namespace kv::card
