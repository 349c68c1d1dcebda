// Device memory through the CUDA driver: the one production Vmm. It runs on the real driver and on
// the fake card alike; which one is a matter of the path it is opened with.
//
// Every member of Vmm except granularity() is a fault point of its own name ("vmm.map", ...): told
// to fail with a CUresult, it returns what that answer of the driver would have given, and the
// driver is not called. Keys: the address, else the handle, the descriptor or the size.
//
// Threads: all members may be called from any thread; close() when no other call is running.
// Copies, fills, allocation, sharing, memory_info() and synchronize() need a context: they work on
// the owner's device whatever the calling thread has current, and leave that as they found it. Page
// calls need none.
// Ownership: owns one reference to the device's primary context, given back by close() and only
// there: the destructor does not touch the driver, which may be down by then.
#ifndef KVCORE_DRIVER_CUDA_VMM_H_
#define KVCORE_DRIVER_CUDA_VMM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kvcore/base/status.h"
#include "kvcore/driver/cuda_driver.h"
#include "kvcore/driver/vmm.h"

namespace kv {

class CudaVmm final : public Vmm {
 public:
  // Loads the driver library at `path`, initialises it and retains the primary context of `device`
  // (an ordinal from 0). On failure no context is held. kNotFound: no such library or symbol (see
  // load_cuda_driver); kDriver: the driver refused, e.g. 101 for a device that is not there.
  static Result<std::unique_ptr<CudaVmm>> open(const std::string& path, int device);
  // The same on a table that is there already; it must outlive the object.
  static Result<std::unique_ptr<CudaVmm>> open(const CudaDriver& driver, int device);

  // Gives the context back; everything else must have been given back before. Idempotent; after a
  // failure it may be called again. After it every other member is kFailedPrecondition.
  Status close();

  Result<std::size_t> granularity() override;
  Result<MemoryInfo> memory_info() override;
  Result<DeviceAddress> reserve(std::size_t size) override;
  Status free_address(DeviceAddress address, std::size_t size) override;
  Result<MemHandle> create(std::size_t size, bool exportable) override;
  Status release(MemHandle handle) override;
  Status map(DeviceAddress address, std::size_t size, MemHandle handle) override;
  Status unmap(DeviceAddress address, std::size_t size) override;
  Status set_access(DeviceAddress address, std::size_t size, Access access) override;
  Result<int> export_handle(MemHandle handle) override;
  Result<MemHandle> import_handle(int fd) override;
  Result<DeviceAddress> allocate(std::size_t size) override;
  Status free(DeviceAddress address) override;
  Result<ShareHandle> share(DeviceAddress address) override;
  Result<DeviceAddress> open_shared(const ShareHandle& handle) override;
  Status close_shared(DeviceAddress address) override;
  Status copy_to_device(DeviceAddress to, const void* from, std::size_t size) override;
  Status copy_from_device(void* to, DeviceAddress from, std::size_t size) override;
  Status fill(DeviceAddress to, std::uint8_t value, std::size_t size) override;
  Status synchronize() override;

 private:
  struct Object;

  CudaVmm(const CudaDriver& driver, cuda::Device device, cuda::Context context)
      : driver_(driver), device_(device), context_(context) {}

  // Runs `call` with our context current on this thread.
  template <typename Call>
  cuda::Result in_context(const Call& call);
  // The Status of a driver's answer to `operation` on `object`.
  Status answer(const char* operation, const Object& object, cuda::Result result) const;

  const CudaDriver& driver_;
  const cuda::Device device_;
  const cuda::Context context_;
  std::atomic<bool> open_{true};
};

}  // namespace kv

#endif  // KVCORE_DRIVER_CUDA_VMM_H_
