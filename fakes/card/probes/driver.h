// The driver under probe: its calls, loaded from the library that the command line names, the real
// one or the card, and a few short cuts that every probe needs.
//
// Threads: any. Ownership: one table a process, never unloaded.
#ifndef FAKES_CARD_PROBES_DRIVER_H_
#define FAKES_CARD_PROBES_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "fakes/card/cuda_abi.h"

namespace kv::card {

// Name, suffix of the exported symbol, parameters.
// clang-format off
#define KVPROBE_CALLS(X)                                                                          \
  X(cuInit, "", (unsigned))                                                                       \
  X(cuDriverGetVersion, "", (int*))                                                               \
  X(cuGetErrorName, "", (CUresult, const char**))                                                 \
  X(cuDeviceGet, "", (CUdevice*, int))                                                            \
  X(cuDeviceGetCount, "", (int*))                                                                 \
  X(cuDeviceTotalMem, "_v2", (std::size_t*, CUdevice))                                            \
  X(cuDevicePrimaryCtxRetain, "", (CUcontext*, CUdevice))                                         \
  X(cuDevicePrimaryCtxRelease, "_v2", (CUdevice))                                                 \
  X(cuDevicePrimaryCtxReset, "_v2", (CUdevice))                                                   \
  X(cuCtxSetCurrent, "", (CUcontext))                                                             \
  X(cuCtxGetCurrent, "", (CUcontext*))                                                            \
  X(cuCtxSynchronize, "", ())                                                                     \
  X(cuMemGetInfo, "_v2", (std::size_t*, std::size_t*))                                            \
  X(cuMemAlloc, "_v2", (CUdeviceptr*, std::size_t))                                               \
  X(cuMemFree, "_v2", (CUdeviceptr))                                                              \
  X(cuMemcpyHtoD, "_v2", (CUdeviceptr, const void*, std::size_t))                                 \
  X(cuMemcpyDtoH, "_v2", (void*, CUdeviceptr, std::size_t))                                       \
  X(cuMemcpyDtoD, "_v2", (CUdeviceptr, CUdeviceptr, std::size_t))                                 \
  X(cuMemcpyDtoDAsync, "_v2", (CUdeviceptr, CUdeviceptr, std::size_t, CUstream))                  \
  X(cuMemcpyHtoDAsync, "_v2", (CUdeviceptr, const void*, std::size_t, CUstream))                  \
  X(cuMemsetD8, "_v2", (CUdeviceptr, unsigned char, std::size_t))                                 \
  X(cuMemsetD32, "_v2", (CUdeviceptr, unsigned, std::size_t))                                     \
  X(cuMemGetAllocationGranularity, "", (std::size_t*, const CUmemAllocationProp*, int))           \
  X(cuMemAddressReserve, "",                                                                      \
    (CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long))                    \
  X(cuMemAddressFree, "", (CUdeviceptr, std::size_t))                                             \
  X(cuMemCreate, "",                                                                              \
    (CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long)) \
  X(cuMemRelease, "", (CUmemGenericAllocationHandle))                                             \
  X(cuMemMap, "",                                                                                 \
    (CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long))    \
  X(cuMemUnmap, "", (CUdeviceptr, std::size_t))                                                   \
  X(cuMemSetAccess, "", (CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t))          \
  X(cuMemGetAccess, "", (unsigned long long*, const CUmemLocation*, CUdeviceptr))                 \
  X(cuMemRetainAllocationHandle, "", (CUmemGenericAllocationHandle*, void*))                      \
  X(cuMemGetAllocationPropertiesFromHandle, "",                                                   \
    (CUmemAllocationProp*, CUmemGenericAllocationHandle))                                         \
  X(cuMemExportToShareableHandle, "",                                                             \
    (void*, CUmemGenericAllocationHandle, int, unsigned long long))                               \
  X(cuMemImportFromShareableHandle, "", (CUmemGenericAllocationHandle*, void*, int))              \
  X(cuPointerGetAttribute, "", (void*, CUpointer_attribute, CUdeviceptr))                         \
  X(cuIpcGetMemHandle, "", (CUipcMemHandle*, CUdeviceptr))                                        \
  X(cuIpcOpenMemHandle, "_v2", (CUdeviceptr*, CUipcMemHandle, unsigned))                          \
  X(cuIpcCloseMemHandle, "", (CUdeviceptr))                                                       \
  X(cuStreamCreate, "", (CUstream*, unsigned))                                                    \
  X(cuStreamDestroy, "_v2", (CUstream))                                                           \
  X(cuStreamSynchronize, "", (CUstream))                                                          \
  X(cuStreamQuery, "", (CUstream))                                                                \
  X(cuStreamWaitEvent, "", (CUstream, CUevent, unsigned))                                         \
  X(cuEventCreate, "", (CUevent*, unsigned))                                                      \
  X(cuEventRecord, "", (CUevent, CUstream))                                                       \
  X(cuEventQuery, "", (CUevent))                                                                  \
  X(cuEventSynchronize, "", (CUevent))                                                            \
  X(cuEventDestroy, "_v2", (CUevent))                                                             \
  X(cuLaunchHostFunc, "", (CUstream, CUhostFn, void*))
// The card's own (kvcard.h); absent in a real driver.
#define KVPROBE_CONTROLS(X)                                                                       \
  X(kvcardHoldStream, (CUstream, CUdeviceptr, std::size_t))                                       \
  X(kvcardAwaitHold, (CUstream))                                                                  \
  X(kvcardReleaseStream, (CUstream))                                                              \
  X(kvcardTearAfter, (unsigned))
// clang-format on

struct Driver {
  // NOLINTBEGIN(bugprone-macro-parentheses): the arguments are a name and a parameter list
#define KVPROBE_MEMBER_(name, suffix, parameters) CUresult(*name) parameters = nullptr;
  KVPROBE_CALLS(KVPROBE_MEMBER_)
#undef KVPROBE_MEMBER_
#define KVPROBE_MEMBER_(name, parameters) unsigned(*name) parameters = nullptr;
  KVPROBE_CONTROLS(KVPROBE_MEMBER_)
#undef KVPROBE_MEMBER_
  // NOLINTEND(bugprone-macro-parentheses)

  bool is_card() const {
    return kvcardHoldStream != nullptr;
  }

  // ---- Short cuts. What is not under test and fails ends the process with a message. ----------
  // Up, with the device's primary context current.
  void start(int device = 0) const;
  CUdeviceptr reserve(std::uint64_t pages) const;
  CUmemGenericAllocationHandle create(std::uint64_t size = kPageSize, bool exportable = false,
                                      int device = 0) const;
  void map(CUdeviceptr address, CUmemGenericAllocationHandle handle,
           std::uint64_t size = kPageSize) const;
  CUresult access(CUdeviceptr address, std::uint64_t size = kPageSize,
                  int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE, int device = 0) const;
  // A page of its own, mapped at `address` and accessible.
  CUmemGenericAllocationHandle page_at(CUdeviceptr address) const;
  std::int64_t free_bytes() const;
  std::string name_of(CUresult code) const;  // "?" when the driver has none to give
};

// Loads the library at `path`; ends the process with a message when it cannot.
const Driver& load_driver(const std::string& path);
[[noreturn]] void give_up(const std::string& why);
// Ends the process unless `code` is 0.
void must(CUresult code, const char* what);
CUmemAllocationProp properties(bool exportable = false, int device = 0);

}  // namespace kv::card

#endif  // FAKES_CARD_PROBES_DRIVER_H_
