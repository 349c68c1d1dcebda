#include "fakes/card/probes/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <type_traits>

namespace kv::card {

void give_up(const std::string& why) {
  std::fprintf(stderr, "kvprobe: %s\n", why.c_str());
  std::fflush(nullptr);
  ::_exit(2);
}

void must(CUresult code, const char* what) {
  if (code != CUDA_SUCCESS) give_up(std::string(what) + " answered " + std::to_string(code));
}

CUmemAllocationProp properties(bool exportable, int device) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes =
      exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

const Driver& load_driver(const std::string& path) {
  static Driver driver;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) give_up(::dlerror());  // NOLINT(concurrency-mt-unsafe): one thread
  const auto look_up = [&](auto& member, const char* symbol, bool required) {
    void* found = ::dlsym(library, symbol);
    if (found == nullptr && required) give_up(path + " has no " + symbol);
    member = reinterpret_cast<std::decay_t<decltype(member)>>(found);
  };
#define KVPROBE_LOAD_(name, suffix, parameters) look_up(driver.name, #name suffix, true);
  KVPROBE_CALLS(KVPROBE_LOAD_)
#undef KVPROBE_LOAD_
#define KVPROBE_LOAD_(name, parameters) look_up(driver.name, #name, false);
  KVPROBE_CONTROLS(KVPROBE_LOAD_)
#undef KVPROBE_LOAD_
  return driver;
}

void Driver::start(int device) const {
  must(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

CUdeviceptr Driver::reserve(std::uint64_t pages) const {
  CUdeviceptr address = 0;
  must(cuMemAddressReserve(&address, pages * kPageSize, 0, 0, 0), "cuMemAddressReserve");
  return address;
}

CUmemGenericAllocationHandle Driver::create(std::uint64_t size, bool exportable, int device) const {
  const CUmemAllocationProp prop = properties(exportable, device);
  CUmemGenericAllocationHandle handle = 0;
  must(cuMemCreate(&handle, size, &prop, 0), "cuMemCreate");
  return handle;
}

void Driver::map(CUdeviceptr address, CUmemGenericAllocationHandle handle,
                 std::uint64_t size) const {
  must(cuMemMap(address, size, 0, handle, 0), "cuMemMap");
}

CUresult Driver::access(CUdeviceptr address, std::uint64_t size, int flags, int device) const {
  const CUmemAccessDesc wanted = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return cuMemSetAccess(address, size, &wanted, 1);
}

CUmemGenericAllocationHandle Driver::page_at(CUdeviceptr address) const {
  const CUmemGenericAllocationHandle handle = create();
  map(address, handle);
  must(access(address), "cuMemSetAccess");
  return handle;
}

std::int64_t Driver::free_bytes() const {
  std::size_t free = 0, total = 0;
  must(cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

std::string Driver::name_of(CUresult code) const {
  const char* name = nullptr;
  return cuGetErrorName(code, &name) == CUDA_SUCCESS && name != nullptr ? name : "?";
}

}  // namespace kv::card
