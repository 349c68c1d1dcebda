// Every exported call is a named moment of the drill: "driver.cuMemMap", a fault whose injected
// code the call answers (or success, without being made). The names carry no version suffix. The
// moment lies before everything else in the call, outside every lock of the card.
//
// Threads: any. Ownership: static.
#ifndef FAKES_CARD_CALLS_H_
#define FAKES_CARD_CALLS_H_

#include <cstdint>
#include <new>

#include "fakes/card/card.h"
#include "fakes/card/cuda_abi.h"
#include "harness/board/kvdrill.h"

// The one place where a call is named.
// clang-format off
#define KVCARD_CALLS(X)                                                                         \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName)         \
  X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)                                \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset)           \
  X(cuDevicePrimaryCtxGetState) X(cuCtxCreate) X(cuCtxDestroy) X(cuCtxPushCurrent)              \
  X(cuCtxPopCurrent) X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxGetDevice)                    \
  X(cuCtxSynchronize)                                                                           \
  X(cuMemGetAllocationGranularity) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate)    \
  X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAccess)                 \
  X(cuMemRetainAllocationHandle) X(cuMemGetAllocationPropertiesFromHandle)                      \
  X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle)                             \
  X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemGetAddressRange) X(cuPointerGetAttribute)   \
  X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)     \
  X(cuMemcpyDtoDAsync) X(cuMemsetD8) X(cuMemsetD32) X(cuMemsetD8Async) X(cuMemsetD32Async)      \
  X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle)                             \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery)                  \
  X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)  \
  X(cuEventDestroy) X(cuLaunchHostFunc) X(cuGetErrorName) X(cuGetErrorString)                   \
  X(cuGetProcAddress)
// clang-format on

namespace kv::card {

enum class Call : unsigned {
#define KVCARD_ENUMERATE_(name) name,
  KVCARD_CALLS(KVCARD_ENUMERATE_)
#undef KVCARD_ENUMERATE_
};

kvdrill_site* site_of(Call call);

inline std::int64_t key_of(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}
inline std::int64_t key_of(const volatile void* pointer) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pointer));
}

// Runs a call that answers at any time. Nothing thrown leaves the library.
template <typename Body>
CUresult call_any_time(Call call, std::int64_t key, Body body) {
  kvdrill_site* site = site_of(call);
  const std::int32_t injected = kvdrill_fault(site, key);
  auto result = static_cast<CUresult>(injected == KVDRILL_PRETEND ? 0 : injected);
  if (injected == 0) {
    try {
      result = body();
    } catch (const std::bad_alloc&) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  kvdrill_done(site, key, static_cast<std::int64_t>(result));
  return result;
}

// Runs a call that needs the card up: body(Card&).
template <typename Body>
CUresult call_card(Call call, std::int64_t key, Body body) {
  return call_any_time(call, key, [&]() -> CUresult {
    Card* card = nullptr;
    if (const CUresult code = card_if_up(&card)) return code;
    return body(*card);
  });
}

// Runs a call that needs a current context in order: body(Card&, CUcontext).
template <typename Body>
CUresult call_in_context(Call call, std::int64_t key, Body body) {
  return call_card(call, key, [&](Card& card) -> CUresult {
    const CUcontext context = Contexts::current();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult code = context->state()) return code;
    return body(card, context);
  });
}

}  // namespace kv::card

#endif  // FAKES_CARD_CALLS_H_
