// Compares cuda_driver.h with a toolkit's cuda.h: a test compiles it, and nothing is made of it. A
// difference is a compile error here.
#include <cuda.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "kvcore/driver/cuda_driver.h"

namespace kv {
namespace {

// Two types that a call passes in the same way. Enums are ints in ours, handles to opaque structs
// are pointers in both; the structs are compared below.
template <typename Ours, typename Theirs>
constexpr bool same_value() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using OurTarget = std::remove_pointer_t<Ours>;
    using TheirTarget = std::remove_pointer_t<Theirs>;
    if constexpr (std::is_const_v<OurTarget> != std::is_const_v<TheirTarget>) {
      return false;
    } else if constexpr (std::is_same_v<OurTarget, cuda::Ctx>) {
      return std::is_same_v<TheirTarget, CUctx_st>;
    } else if constexpr (std::is_void_v<OurTarget> || std::is_void_v<TheirTarget>) {
      return std::is_void_v<OurTarget> && std::is_void_v<TheirTarget>;
    } else {
      return same_value<OurTarget, TheirTarget>();
    }
  } else {
    return std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
           std::is_class_v<Ours> == std::is_class_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
           alignof(Ours) == alignof(Theirs);
  }
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename OurResult, typename... OurArguments, typename TheirResult,
          typename... TheirArguments>
struct SameCall<OurResult (*)(OurArguments...), TheirResult (*)(TheirArguments...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(OurArguments) != sizeof...(TheirArguments)) {
      return false;
    } else {
      return same_value<OurResult, TheirResult>() &&
             (same_value<OurArguments, TheirArguments>() && ...);
    }
  }
  static constexpr bool value = compare();
};

// cuda.h renames calls by macros (cuMemAlloc is cuMemAlloc_v2): this is the name after that.
#define KV_TEXT_INNER_(name) #name
#define KV_TEXT_(name) KV_TEXT_INNER_(name)
#define KV_CHECK_CALL_(member, name, symbol, parameters)                                   \
  static_assert(std::string_view(KV_TEXT_(name)) == symbol, "cuda.h has another version"); \
  static_assert(SameCall<decltype(CudaDriver::member), decltype(&::name)>::value, "signature");
// The argument `name` must reach KV_TEXT_ unexpanded or expanded alike: both give the symbol.
KV_CUDA_CALLS(KV_CHECK_CALL_)

static_assert(cuda::kSuccess == CUDA_SUCCESS);
static_assert(cuda::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::kAllocationTypePinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(cuda::kHandleTypeNone == CU_MEM_HANDLE_TYPE_NONE);
static_assert(cuda::kHandleTypeDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(cuda::kLocationTypeDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(cuda::kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(cuda::kAccessNone == CU_MEM_ACCESS_FLAGS_PROT_NONE);
static_assert(cuda::kAccessRead == CU_MEM_ACCESS_FLAGS_PROT_READ);
static_assert(cuda::kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(cuda::kIpcLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

static_assert(sizeof(cuda::Location) == sizeof(CUmemLocation));
static_assert(offsetof(cuda::Location, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(cuda::Location, id) == offsetof(CUmemLocation, id));

static_assert(sizeof(cuda::AllocationProp) == sizeof(CUmemAllocationProp));
static_assert(offsetof(cuda::AllocationProp, type) == offsetof(CUmemAllocationProp, type));
static_assert(offsetof(cuda::AllocationProp, requested_handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(cuda::AllocationProp, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(cuda::AllocationProp, win32_meta_data) ==
              offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(cuda::AllocationProp, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(offsetof(cuda::AllocationProp, flags.usage) ==
              offsetof(CUmemAllocationProp, allocFlags.usage));

static_assert(sizeof(cuda::AccessDesc) == sizeof(CUmemAccessDesc));
static_assert(offsetof(cuda::AccessDesc, location) == offsetof(CUmemAccessDesc, location));
static_assert(offsetof(cuda::AccessDesc, flags) == offsetof(CUmemAccessDesc, flags));

static_assert(sizeof(cuda::IpcMemHandle) == CU_IPC_HANDLE_SIZE);

}  // namespace
}  // namespace kv
