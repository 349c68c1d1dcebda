// The part of the CUDA driver interface that the engine calls: own declarations, so that it
// compiles without the CUDA toolkit, and a table of functions filled at run time from the real
// driver's library or from the fake card. Where the toolkit is present, cuda_abi_check.cc compares
// all of it with cuda.h at compile time.
//
// Threads: load_cuda_driver() may be called from any thread; a table never changes once it is made.
// Ownership: tables belong to the process and live to its end. A library that was loaded is never
// unloaded: the driver has threads and exit handlers of its own.
#ifndef KVCORE_DRIVER_CUDA_DRIVER_H_
#define KVCORE_DRIVER_CUDA_DRIVER_H_

#include <cstddef>
#include <string>

#include "kvcore/base/status.h"

namespace kv {

// The driver's types, by their driver names less the prefix. Names of the values are ours: cuda.h
// has macros of its own.
namespace cuda {

using Result = int;                           // CUresult
using Device = int;                           // CUdevice
using Context = struct Ctx*;                  // CUcontext
using Pointer = unsigned long long;           // CUdeviceptr
using AllocationHandle = unsigned long long;  // CUmemGenericAllocationHandle

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;

inline constexpr int kAllocationTypePinned = 1;
inline constexpr int kHandleTypeNone = 0;
inline constexpr int kHandleTypeDescriptor = 1;  // POSIX file descriptor
inline constexpr int kLocationTypeDevice = 1;
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kAccessNone = 0;
inline constexpr int kAccessRead = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;

struct Location {  // CUmemLocation
  int type;
  int id;
};
struct AllocationProp {  // CUmemAllocationProp
  int type;
  int requested_handle_types;
  Location location;
  void* win32_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct AccessDesc {  // CUmemAccessDesc
  Location location;
  int flags;
};
struct IpcMemHandle {  // CUipcMemHandle
  char reserved[64];
};

}  // namespace cuda

// Every call of the table: member, name in cuda.h, exported symbol, parameters. The one place where
// a call is added.
// clang-format off
#define KV_CUDA_CALLS(X)                                                                          \
  X(init, cuInit, "cuInit", (unsigned flags))                                                     \
  X(get_error_name, cuGetErrorName, "cuGetErrorName", (cuda::Result error, const char** name))    \
  X(device_get, cuDeviceGet, "cuDeviceGet", (cuda::Device * device, int ordinal))                 \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                     \
    (cuda::Context * context, cuda::Device device))                                               \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2",               \
    (cuda::Device device))                                                                        \
  X(ctx_get_current, cuCtxGetCurrent, "cuCtxGetCurrent", (cuda::Context * context))               \
  X(ctx_set_current, cuCtxSetCurrent, "cuCtxSetCurrent", (cuda::Context context))                 \
  X(ctx_synchronize, cuCtxSynchronize, "cuCtxSynchronize", ())                                    \
  X(mem_get_info, cuMemGetInfo, "cuMemGetInfo_v2", (std::size_t * free, std::size_t * total))     \
  X(mem_alloc, cuMemAlloc, "cuMemAlloc_v2", (cuda::Pointer * address, std::size_t size))          \
  X(mem_free, cuMemFree, "cuMemFree_v2", (cuda::Pointer address))                                 \
  X(memcpy_to_device, cuMemcpyHtoD, "cuMemcpyHtoD_v2",                                            \
    (cuda::Pointer to, const void* from, std::size_t size))                                       \
  X(memcpy_from_device, cuMemcpyDtoH, "cuMemcpyDtoH_v2",                                          \
    (void* to, cuda::Pointer from, std::size_t size))                                             \
  X(memset_bytes, cuMemsetD8, "cuMemsetD8_v2",                                                    \
    (cuda::Pointer to, unsigned char value, std::size_t size))                                    \
  X(mem_get_allocation_granularity, cuMemGetAllocationGranularity,                                \
    "cuMemGetAllocationGranularity",                                                              \
    (std::size_t * granularity, const cuda::AllocationProp* prop, int option))                    \
  X(mem_address_reserve, cuMemAddressReserve, "cuMemAddressReserve",                              \
    (cuda::Pointer * address, std::size_t size, std::size_t alignment, cuda::Pointer hint,        \
     unsigned long long flags))                                                                   \
  X(mem_address_free, cuMemAddressFree, "cuMemAddressFree",                                       \
    (cuda::Pointer address, std::size_t size))                                                    \
  X(mem_create, cuMemCreate, "cuMemCreate",                                                       \
    (cuda::AllocationHandle * handle, std::size_t size, const cuda::AllocationProp* prop,         \
     unsigned long long flags))                                                                   \
  X(mem_release, cuMemRelease, "cuMemRelease", (cuda::AllocationHandle handle))                   \
  X(mem_map, cuMemMap, "cuMemMap",                                                                \
    (cuda::Pointer address, std::size_t size, std::size_t offset, cuda::AllocationHandle handle,  \
     unsigned long long flags))                                                                   \
  X(mem_unmap, cuMemUnmap, "cuMemUnmap", (cuda::Pointer address, std::size_t size))               \
  X(mem_set_access, cuMemSetAccess, "cuMemSetAccess",                                             \
    (cuda::Pointer address, std::size_t size, const cuda::AccessDesc* access,                     \
     std::size_t count))                                                                          \
  X(mem_export, cuMemExportToShareableHandle, "cuMemExportToShareableHandle",                     \
    (void* shareable, cuda::AllocationHandle handle, int type, unsigned long long flags))         \
  X(mem_import, cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                 \
    (cuda::AllocationHandle * handle, void* shareable, int type))                                 \
  X(ipc_get_mem_handle, cuIpcGetMemHandle, "cuIpcGetMemHandle",                                   \
    (cuda::IpcMemHandle * handle, cuda::Pointer address))                                         \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2",                             \
    (cuda::Pointer * address, cuda::IpcMemHandle handle, unsigned flags))                         \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (cuda::Pointer address))
// clang-format on

struct CudaDriver {
// NOLINTBEGIN(bugprone-macro-parentheses): these are declarations
#define KV_DECLARE_CALL_(member, name, symbol, parameters) \
  cuda::Result(*member) parameters = nullptr;
  KV_CUDA_CALLS(KV_DECLARE_CALL_)
#undef KV_DECLARE_CALL_
  // NOLINTEND(bugprone-macro-parentheses)
};

// The table of the driver library at `path` (as for dlopen: with a slash a file, without one a name
// for the loader's search). A path is loaded once; later calls return the same table.
// kNotFound: no such library, or it lacks a symbol; the object is the path, the text names what is
// missing. A failure is not remembered.
Result<const CudaDriver*> load_cuda_driver(const std::string& path);

// "CUDA_ERROR_OUT_OF_MEMORY", ...: the driver's own name; "unknown CUresult" where it has none.
std::string cuda_result_name(const CudaDriver& driver, cuda::Result result);

}  // namespace kv

#endif  // KVCORE_DRIVER_CUDA_DRIVER_H_
