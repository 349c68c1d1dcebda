// A GoogleMock double of Vmm, for tests of the order of driver calls. Tests of what a sequence of
// calls leaves behind use the model instead (model_vmm.h).
//
// Threads: as GoogleMock's. Ownership: none.
#ifndef FAKES_DOUBLES_MOCK_VMM_H_
#define FAKES_DOUBLES_MOCK_VMM_H_

#include <gmock/gmock.h>

#include "kvcore/driver/vmm.h"

namespace kv {

class MockVmm : public Vmm {
 public:
  MOCK_METHOD(Result<std::size_t>, granularity, (), (override));
  MOCK_METHOD(Result<MemoryInfo>, memory_info, (), (override));
  MOCK_METHOD(Result<DeviceAddress>, reserve, (std::size_t size), (override));
  MOCK_METHOD(Status, free_address, (DeviceAddress address, std::size_t size), (override));
  MOCK_METHOD(Result<MemHandle>, create, (std::size_t size, bool exportable), (override));
  MOCK_METHOD(Status, release, (MemHandle handle), (override));
  MOCK_METHOD(Status, map, (DeviceAddress address, std::size_t size, MemHandle handle), (override));
  MOCK_METHOD(Status, unmap, (DeviceAddress address, std::size_t size), (override));
  MOCK_METHOD(Status, set_access, (DeviceAddress address, std::size_t size, Access access),
              (override));
  MOCK_METHOD(Result<int>, export_handle, (MemHandle handle), (override));
  MOCK_METHOD(Result<MemHandle>, import_handle, (int fd), (override));
  MOCK_METHOD(Result<DeviceAddress>, allocate, (std::size_t size), (override));
  MOCK_METHOD(Status, free, (DeviceAddress address), (override));
  MOCK_METHOD(Result<ShareHandle>, share, (DeviceAddress address), (override));
  MOCK_METHOD(Result<DeviceAddress>, open_shared, (const ShareHandle& handle), (override));
  MOCK_METHOD(Status, close_shared, (DeviceAddress address), (override));
  MOCK_METHOD(Status, copy_to_device, (DeviceAddress to, const void* from, std::size_t size),
              (override));
  MOCK_METHOD(Status, copy_from_device, (void* to, DeviceAddress from, std::size_t size),
              (override));
  MOCK_METHOD(Status, fill, (DeviceAddress to, std::uint8_t value, std::size_t size), (override));
  MOCK_METHOD(Status, synchronize, (), (override));
};

}  // namespace kv

#endif  // FAKES_DOUBLES_MOCK_VMM_H_
