// Device memory as the engine uses it: address ranges, physical pages and mappings, copies and
// fills. One production class stands behind it (cuda_vmm.h); tests put doubles there.
//
// Threads: all members may be called from any thread; calls on different objects run in parallel.
// Ownership: whoever gets a handle or a range gives it back; an implementation gives nothing back
// by itself at destruction.
// Errors: Code::kOutOfMemory when device, host or address space is out of it; Code::kDriver with
// the driver's number otherwise; a failed call has changed nothing.
// Source of the facts named below: the recorded driver behaviour (580.159, CUDA 13.0, H200).
#ifndef KVCORE_DRIVER_VMM_H_
#define KVCORE_DRIVER_VMM_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "kvcore/base/status.h"

namespace kv {

using DeviceAddress = std::uint64_t;
// Physical memory; 0 is none.
enum class MemHandle : std::uint64_t { kNone = 0 };
// Names plain memory for other processes of this machine; means nothing but to the driver.
struct ShareHandle {
  std::array<char, 64> bytes{};
  bool operator==(const ShareHandle&) const = default;
};
enum class Access : std::uint8_t { kNone = 0, kRead = 1, kReadWrite = 3 };

class Vmm {
 public:
  virtual ~Vmm() = default;

  // Bytes that sizes and addresses of pages are multiples of (2 MiB on all cards of interest).
  virtual Result<std::size_t> granularity() = 0;
  struct MemoryInfo {  // bytes of this device
    std::size_t free = 0, total = 0;
  };
  virtual Result<MemoryInfo> memory_info() = 0;

  // An address range of `size` bytes (a multiple of the granularity, > 0) without memory in it.
  virtual Result<DeviceAddress> reserve(std::size_t size) = 0;
  // Gives back a whole range as reserved; refused (kDriver, 1) while anything is mapped in it.
  virtual Status free_address(DeviceAddress address, std::size_t size) = 0;

  // Physical memory on this device. `exportable`: it can be handed to another process.
  virtual Result<MemHandle> create(std::size_t size, bool exportable) = 0;
  // Gives the handle back; memory that is still mapped lives on until the last unmap.
  virtual Status release(MemHandle handle) = 0;
  // Maps the whole handle; the size must be the handle's. Not accessible before set_access().
  // Refused (kDriver, 1) where something is mapped already.
  virtual Status map(DeviceAddress address, std::size_t size, MemHandle handle) = 0;
  // Unmaps all mappings in the range; half a mapping is refused. Does not wait for work in flight:
  // that work dies and poisons the context (measured), so the caller synchronises first.
  virtual Status unmap(DeviceAddress address, std::size_t size) = 0;
  virtual Status set_access(DeviceAddress address, std::size_t size, Access access) = 0;

  // Hands the memory to another process as a descriptor, which keeps it alive while open anywhere.
  virtual Result<int> export_handle(MemHandle handle) = 0;
  // The descriptor stays the caller's.
  virtual Result<MemHandle> import_handle(int fd) = 0;

  // Plain device memory, mapped and accessible at once.
  virtual Result<DeviceAddress> allocate(std::size_t size) = 0;
  virtual Status free(DeviceAddress address) = 0;

  // Names a whole plain allocation for other processes. The name keeps nothing alive: once the
  // memory is gone everywhere, opening it is refused.
  virtual Result<ShareHandle> share(DeviceAddress address) = 0;
  // Another process's memory, by its name; not in the process that made it (kDriver, 201). Opened
  // again it gives the same address, and counts: each opening is closed once. While it is open the
  // memory lives, whatever its maker does or dies of.
  virtual Result<DeviceAddress> open_shared(const ShareHandle& handle) = 0;
  virtual Status close_shared(DeviceAddress address) = 0;

  // Blocking copies and fills; they need access to the whole range.
  virtual Status copy_to_device(DeviceAddress to, const void* from, std::size_t size) = 0;
  virtual Status copy_from_device(void* to, DeviceAddress from, std::size_t size) = 0;
  virtual Status fill(DeviceAddress to, std::uint8_t value, std::size_t size) = 0;
  // Waits for all work of this process on the device.
  virtual Status synchronize() = 0;

  // Whether map() or free_address() failed because something is mapped there. Where the books say
  // that nothing is, the driver had said of an unmap that it was done, and it was not.
  static bool refuses_address(const Status& status) {
    return status.code() == Code::kDriver && status.native() == 1;
  }
};

}  // namespace kv

#endif  // KVCORE_DRIVER_VMM_H_
