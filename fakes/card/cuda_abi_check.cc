// Compares the card's own declarations with a toolkit's cuda.h: a test compiles it, and nothing is
// made of it. What older toolkits do not have is compared from the version on that was looked at.
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "fakes/card/cuda_abi.h"
#include "fakes/card/probes/driver.h"

namespace kv::card {
namespace {

#define SAME_VALUE(name) static_assert(static_cast<long>(card::name) == static_cast<long>(::name))
SAME_VALUE(CUDA_SUCCESS);
SAME_VALUE(CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_ERROR_DEINITIALIZED);
SAME_VALUE(CUDA_ERROR_NO_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(CUDA_ERROR_NOT_FOUND);
SAME_VALUE(CUDA_ERROR_NOT_READY);
SAME_VALUE(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_VALUE(CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(CUDA_ERROR_SYSTEM_NOT_READY);
SAME_VALUE(CUDA_ERROR_UNKNOWN);
SAME_VALUE(CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(CU_MEM_HANDLE_TYPE_NONE);
SAME_VALUE(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(CU_MEMORYTYPE_DEVICE);
SAME_VALUE(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME_VALUE(CU_STREAM_NON_BLOCKING);
SAME_VALUE(CU_POINTER_ATTRIBUTE_CONTEXT);
SAME_VALUE(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
SAME_VALUE(CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME_VALUE(CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME_VALUE(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_VALUE(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME_VALUE(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME_VALUE(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME_VALUE(CU_POINTER_ATTRIBUTE_MAPPED);
SAME_VALUE(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
#if CUDA_VERSION >= 12040
SAME_VALUE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
#endif
#undef SAME_VALUE

#define SAME_MEMBER(type, member)                                           \
  static_assert(offsetof(card::type, member) == offsetof(::type, member) && \
                sizeof(card::type::member) == sizeof(::type::member))
SAME_MEMBER(CUmemLocation, type);
SAME_MEMBER(CUmemLocation, id);
SAME_MEMBER(CUmemAllocationProp, type);
SAME_MEMBER(CUmemAllocationProp, requestedHandleTypes);
SAME_MEMBER(CUmemAllocationProp, location);
SAME_MEMBER(CUmemAllocationProp, win32HandleMetaData);
SAME_MEMBER(CUmemAllocationProp, allocFlags);
SAME_MEMBER(CUmemAccessDesc, location);
SAME_MEMBER(CUmemAccessDesc, flags);
#undef SAME_MEMBER
static_assert(sizeof(card::CUmemAllocationProp) == sizeof(::CUmemAllocationProp));
static_assert(sizeof(card::CUmemAccessDesc) == sizeof(::CUmemAccessDesc));
static_assert(sizeof(card::CUipcMemHandle) == sizeof(::CUipcMemHandle));
static_assert(sizeof(card::CUuuid) == sizeof(::CUuuid));
static_assert(sizeof(card::CUresult) == sizeof(::CUresult));
static_assert(sizeof(card::CUdeviceptr) == sizeof(::CUdeviceptr));

// Two types that a call passes in the same way.
template <typename Ours, typename Theirs>
constexpr bool kSameValue =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
        std::is_class_v<Theirs>;
template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameCall<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<(kSameValue<Ours, Theirs> && ...)> {
};

// The probes' table is what the probes call the real driver by; the card answers them by the same.
#define SAME_CALL(name, suffix, parameters) \
  static_assert(SameCall<decltype(Driver::name), decltype(&::name)>::value, #name);
KVPROBE_CALLS(SAME_CALL)
#undef SAME_CALL

}  // namespace
}  // namespace kv::card
