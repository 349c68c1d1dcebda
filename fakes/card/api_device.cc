// Exported calls: start, devices, errors.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fakes/card/calls.h"
#include "fakes/card/cuda_abi.h"
#include "fakes/card/errors.h"

namespace kv::card {
namespace {

constexpr char kDeviceName[] = "kvdrill fake card";

// What an H200 says, where an engine might look; 0 for the rest.
int attribute(int which, int device) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return device + 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

CUresult uuid_of(CUuuid* uuid, CUdevice device) {
  return call_card(Call::cuDeviceGetUuid, device, [&](Card& card) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!card.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    // The same in all processes of a run.
    const std::uint64_t words[2] = {card.accounts.name({}).card,
                                    static_cast<std::uint64_t>(device) + 1};
    std::memcpy(uuid->bytes, words, sizeof words);
    return CUDA_SUCCESS;
  });
}

// A name or text of a code. Works before cuInit; not once the driver is down (recorded).
CUresult describe(Call call, unsigned code, const char* (*look_up)(unsigned), const char** text) {
  return call_any_time(call, static_cast<std::int64_t>(code), [&] {
    if (card_went_down()) return CUDA_ERROR_DEINITIALIZED;
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *text = look_up(code);
    return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

}  // namespace

KVCARD_API CUresult cuInit(unsigned flags) {
  return call_any_time(Call::cuInit, flags,
                       [&] { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : start_card(); });
}

KVCARD_API CUresult cuDriverGetVersion(int* version) {
  return call_any_time(Call::cuDriverGetVersion, 0, [&] {
    if (card_went_down()) return CUDA_ERROR_DEINITIALIZED;
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = kDriverVersion;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call_card(Call::cuDeviceGet, ordinal, [&](Card& card) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!card.has_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDeviceGetCount(int* count) {
  return call_card(Call::cuDeviceGetCount, 0, [&](Card& card) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(card.accounts.devices());
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return call_card(Call::cuDeviceGetName, device, [&](Card& card) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!card.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", kDeviceName);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return uuid_of(uuid, device);
}

KVCARD_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return uuid_of(uuid, device);
}

KVCARD_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  return call_card(Call::cuDeviceGetAttribute, which, [&](Card& card) {
    if (value == nullptr || which <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!card.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute(which, device);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return call_card(Call::cuDeviceTotalMem, device, [&](Card& card) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!card.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = card.accounts.total_bytes(device);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuGetErrorName(CUresult code, const char** name) {
  return describe(Call::cuGetErrorName, code, error_name, name);
}

KVCARD_API CUresult cuGetErrorString(CUresult code, const char** text) {
  return describe(Call::cuGetErrorString, code, error_text, text);
}

}  // namespace kv::card
