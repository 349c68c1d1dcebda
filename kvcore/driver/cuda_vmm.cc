#include "kvcore/driver/cuda_vmm.h"

#include <array>
#include <cstdio>
#include <cstring>

#include "kvcore/hook.h"

namespace kv {

// What a call works on, put into words only when it has failed.
struct CudaVmm::Object {
  const char* what = "";
  std::uint64_t value = 0;
  std::size_t size = 0;  // 0: not said

  std::string to_string() const {
    std::array<char, 96> text{};
    if (what[0] == '\0') return {};
    int n = std::snprintf(text.data(), text.size(), "%s 0x%llx", what,
                          static_cast<unsigned long long>(value));
    if (size != 0) {
      std::snprintf(text.data() + n, text.size() - static_cast<std::size_t>(n), ", %zu bytes",
                    size);
    }
    return text.data();
  }
};

namespace {

Status driver_error(const CudaDriver& driver, const char* operation, std::string_view object,
                    cuda::Result result) {
  if (result == cuda::kSuccess) return {};
  return Status::error(result == cuda::kOutOfMemory ? Code::kOutOfMemory : Code::kDriver, operation,
                       object, result, cuda_result_name(driver, result));
}

cuda::AllocationProp page_prop(cuda::Device device, bool exportable) {
  cuda::AllocationProp prop{};
  prop.type = cuda::kAllocationTypePinned;
  prop.requested_handle_types = exportable ? cuda::kHandleTypeDescriptor : cuda::kHandleTypeNone;
  prop.location = {cuda::kLocationTypeDevice, device};
  return prop;
}

// One call of the driver as a fault point: its answer, or the one that a drill gave instead.
template <hook_detail::Name kName, typename Call>
cuda::Result faulty(std::uint64_t key, const Call& call) {
  return attempt<kName>(static_cast<std::int64_t>(key), call);
}

std::uint64_t raw(MemHandle handle) {
  return static_cast<std::uint64_t>(handle);
}

}  // namespace

Result<std::unique_ptr<CudaVmm>> CudaVmm::open(const std::string& path, int device) {
  KV_ASSIGN_OR_RETURN(const CudaDriver* driver, load_cuda_driver(path));
  return open(*driver, device);
}

Result<std::unique_ptr<CudaVmm>> CudaVmm::open(const CudaDriver& driver, int device) {
  const std::string object = "device " + std::to_string(device);
  KV_RETURN_IF_ERROR(driver_error(driver, "vmm.open", "cuInit", driver.init(0)));
  cuda::Device number = 0;
  KV_RETURN_IF_ERROR(driver_error(driver, "vmm.open", object, driver.device_get(&number, device)));
  cuda::Context context = nullptr;
  KV_RETURN_IF_ERROR(
      driver_error(driver, "vmm.open", object, driver.primary_ctx_retain(&context, number)));
  return std::unique_ptr<CudaVmm>(new CudaVmm(driver, number, context));
}

Status CudaVmm::close() {
  if (!open_.exchange(false)) return {};
  const cuda::Result result = driver_.primary_ctx_release(device_);
  if (result != cuda::kSuccess) open_.store(true);
  return answer("vmm.close", {"device", static_cast<std::uint64_t>(device_)}, result);
}

template <typename Call>
cuda::Result CudaVmm::in_context(const Call& call) {
  cuda::Context current = nullptr;
  if (const auto result = driver_.ctx_get_current(&current); result != cuda::kSuccess)
    return result;
  if (current == context_) return call();
  if (const auto result = driver_.ctx_set_current(context_); result != cuda::kSuccess)
    return result;
  const cuda::Result result = call();
  // What the caller had: another library on this thread relies on it. Should it be gone meanwhile,
  // the work asked for is done all the same.
  driver_.ctx_set_current(current);
  return result;
}

Status CudaVmm::answer(const char* operation, const Object& object, cuda::Result result) const {
  if (result == cuda::kSuccess) return {};
  return driver_error(driver_, operation, object.to_string(), result);
}

// Leaves the function when the context was given back: the driver would answer from whatever state
// another owner left it in.
#define KV_RETURN_IF_CLOSED(operation)                                                    \
  do {                                                                                    \
    if (!open_.load(std::memory_order_acquire)) {                                         \
      return Status::error(Code::kFailedPrecondition, operation, "", 0, "it was closed"); \
    }                                                                                     \
  } while (false)

Result<std::size_t> CudaVmm::granularity() {
  KV_RETURN_IF_CLOSED("vmm.granularity");
  const cuda::AllocationProp prop = page_prop(device_, false);
  std::size_t bytes = 0;
  KV_RETURN_IF_ERROR(
      answer("vmm.granularity", {},
             driver_.mem_get_allocation_granularity(&bytes, &prop, cuda::kGranularityMinimum)));
  return bytes;
}

Result<Vmm::MemoryInfo> CudaVmm::memory_info() {
  KV_RETURN_IF_CLOSED("vmm.memory_info");
  MemoryInfo info;
  const auto result = faulty<"vmm.memory_info">(
      0, [&] { return in_context([&] { return driver_.mem_get_info(&info.free, &info.total); }); });
  KV_RETURN_IF_ERROR(answer("vmm.memory_info", {}, result));
  return info;
}

Result<DeviceAddress> CudaVmm::reserve(std::size_t size) {
  KV_RETURN_IF_CLOSED("vmm.reserve");
  cuda::Pointer address = 0;
  const auto result = faulty<"vmm.reserve">(
      size, [&] { return driver_.mem_address_reserve(&address, size, 0, 0, 0); });
  KV_RETURN_IF_ERROR(answer("vmm.reserve", {"size", size}, result));
  return DeviceAddress{address};
}

Status CudaVmm::free_address(DeviceAddress address, std::size_t size) {
  KV_RETURN_IF_CLOSED("vmm.free_address");
  const auto result =
      faulty<"vmm.free_address">(address, [&] { return driver_.mem_address_free(address, size); });
  return answer("vmm.free_address", {"address", address, size}, result);
}

Result<MemHandle> CudaVmm::create(std::size_t size, bool exportable) {
  KV_RETURN_IF_CLOSED("vmm.create");
  const cuda::AllocationProp prop = page_prop(device_, exportable);
  cuda::AllocationHandle handle = 0;
  const auto result =
      faulty<"vmm.create">(size, [&] { return driver_.mem_create(&handle, size, &prop, 0); });
  KV_RETURN_IF_ERROR(answer("vmm.create", {"size", size}, result));
  return MemHandle{handle};
}

Status CudaVmm::release(MemHandle handle) {
  KV_RETURN_IF_CLOSED("vmm.release");
  const auto result =
      faulty<"vmm.release">(raw(handle), [&] { return driver_.mem_release(raw(handle)); });
  return answer("vmm.release", {"handle", raw(handle)}, result);
}

Status CudaVmm::map(DeviceAddress address, std::size_t size, MemHandle handle) {
  KV_RETURN_IF_CLOSED("vmm.map");
  const auto result =
      faulty<"vmm.map">(address, [&] { return driver_.mem_map(address, size, 0, raw(handle), 0); });
  return answer("vmm.map", {"address", address, size}, result);
}

Status CudaVmm::unmap(DeviceAddress address, std::size_t size) {
  KV_RETURN_IF_CLOSED("vmm.unmap");
  const auto result =
      faulty<"vmm.unmap">(address, [&] { return driver_.mem_unmap(address, size); });
  return answer("vmm.unmap", {"address", address, size}, result);
}

Status CudaVmm::set_access(DeviceAddress address, std::size_t size, Access access) {
  KV_RETURN_IF_CLOSED("vmm.set_access");
  const cuda::AccessDesc desc{{cuda::kLocationTypeDevice, device_}, static_cast<int>(access)};
  const auto result = faulty<"vmm.set_access">(
      address, [&] { return driver_.mem_set_access(address, size, &desc, 1); });
  return answer("vmm.set_access", {"address", address, size}, result);
}

Result<int> CudaVmm::export_handle(MemHandle handle) {
  KV_RETURN_IF_CLOSED("vmm.export");
  int fd = -1;
  const auto result = faulty<"vmm.export">(raw(handle), [&] {
    return driver_.mem_export(&fd, raw(handle), cuda::kHandleTypeDescriptor, 0);
  });
  KV_RETURN_IF_ERROR(answer("vmm.export", {"handle", raw(handle)}, result));
  return fd;
}

Result<MemHandle> CudaVmm::import_handle(int fd) {
  KV_RETURN_IF_CLOSED("vmm.import");
  cuda::AllocationHandle handle = 0;
  const auto result = faulty<"vmm.import">(static_cast<std::uint64_t>(fd), [&] {
    // The driver takes the descriptor's number in place of a pointer.
    void* number = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
    return driver_.mem_import(&handle, number, cuda::kHandleTypeDescriptor);
  });
  KV_RETURN_IF_ERROR(answer("vmm.import", {"descriptor", static_cast<std::uint64_t>(fd)}, result));
  return MemHandle{handle};
}

Result<DeviceAddress> CudaVmm::allocate(std::size_t size) {
  KV_RETURN_IF_CLOSED("vmm.allocate");
  cuda::Pointer address = 0;
  const auto result = faulty<"vmm.allocate">(
      size, [&] { return in_context([&] { return driver_.mem_alloc(&address, size); }); });
  KV_RETURN_IF_ERROR(answer("vmm.allocate", {"size", size}, result));
  return DeviceAddress{address};
}

Status CudaVmm::free(DeviceAddress address) {
  KV_RETURN_IF_CLOSED("vmm.free");
  const auto result = faulty<"vmm.free">(
      address, [&] { return in_context([&] { return driver_.mem_free(address); }); });
  return answer("vmm.free", {"address", address}, result);
}

Result<ShareHandle> CudaVmm::share(DeviceAddress address) {
  KV_RETURN_IF_CLOSED("vmm.share");
  cuda::IpcMemHandle named{};
  const auto result = faulty<"vmm.share">(address, [&] {
    return in_context([&] { return driver_.ipc_get_mem_handle(&named, address); });
  });
  KV_RETURN_IF_ERROR(answer("vmm.share", {"address", address}, result));
  ShareHandle handle;
  static_assert(sizeof handle == sizeof named);
  std::memcpy(handle.bytes.data(), named.reserved, handle.bytes.size());
  return handle;
}

Result<DeviceAddress> CudaVmm::open_shared(const ShareHandle& handle) {
  KV_RETURN_IF_CLOSED("vmm.open_shared");
  cuda::IpcMemHandle named{};
  std::memcpy(named.reserved, handle.bytes.data(), handle.bytes.size());
  cuda::Pointer address = 0;
  const auto result = faulty<"vmm.open_shared">(0, [&] {
    return in_context([&] {
      return driver_.ipc_open_mem_handle(&address, named, cuda::kIpcLazyEnablePeerAccess);
    });
  });
  KV_RETURN_IF_ERROR(answer("vmm.open_shared", {}, result));
  return DeviceAddress{address};
}

Status CudaVmm::close_shared(DeviceAddress address) {
  KV_RETURN_IF_CLOSED("vmm.close_shared");
  const auto result = faulty<"vmm.close_shared">(
      address, [&] { return in_context([&] { return driver_.ipc_close_mem_handle(address); }); });
  return answer("vmm.close_shared", {"address", address}, result);
}

Status CudaVmm::copy_to_device(DeviceAddress to, const void* from, std::size_t size) {
  KV_RETURN_IF_CLOSED("vmm.copy");
  const auto result = faulty<"vmm.copy">(
      to, [&] { return in_context([&] { return driver_.memcpy_to_device(to, from, size); }); });
  return answer("vmm.copy", {"to address", to, size}, result);
}

Status CudaVmm::copy_from_device(void* to, DeviceAddress from, std::size_t size) {
  KV_RETURN_IF_CLOSED("vmm.copy");
  const auto result = faulty<"vmm.copy">(
      from, [&] { return in_context([&] { return driver_.memcpy_from_device(to, from, size); }); });
  return answer("vmm.copy", {"from address", from, size}, result);
}

Status CudaVmm::fill(DeviceAddress to, std::uint8_t value, std::size_t size) {
  KV_RETURN_IF_CLOSED("vmm.fill");
  // The driver's call returns while the device still writes (seen on an H200: rights narrowed right
  // behind it made the write an illegal one).
  const auto result = faulty<"vmm.fill">(to, [&] {
    return in_context([&] {
      const cuda::Result begun = driver_.memset_bytes(to, value, size);
      return begun == cuda::kSuccess ? driver_.ctx_synchronize() : begun;
    });
  });
  return answer("vmm.fill", {"address", to, size}, result);
}

Status CudaVmm::synchronize() {
  KV_RETURN_IF_CLOSED("vmm.synchronize");
  const auto result = faulty<"vmm.synchronize">(
      0, [&] { return in_context([&] { return driver_.ctx_synchronize(); }); });
  return answer("vmm.synchronize", {}, result);
}

}  // namespace kv
