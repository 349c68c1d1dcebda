#include "kvcore/driver/cuda_vmm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/doubles/mock_driver.h"
#include "fakes/doubles/test_hooks.h"

namespace kv {
namespace {

using ::testing::_;
using ::testing::DoAll;
using ::testing::Eq;
using ::testing::Expectation;
using ::testing::HasSubstr;
using ::testing::InSequence;
using ::testing::NiceMock;
using ::testing::Return;
using ::testing::SetArgPointee;
using ::testing::StrictMock;

constexpr std::size_t kPage = 2u << 20;
constexpr DeviceAddress kAddress = 0x7f0000000000;
constexpr MemHandle kHandle{0x1234};

// Every call of Vmm that is a fault point, with arguments that mean nothing.
struct Call {
  const char* name;
  std::function<Status(Vmm&)> make;
};
const std::vector<Call>& faulty_calls() {
  static char bytes[8];
  static const std::vector<Call> calls = {
      {"vmm.memory_info", [](Vmm& vmm) { return vmm.memory_info().status(); }},
      {"vmm.reserve", [](Vmm& vmm) { return vmm.reserve(kPage).status(); }},
      {"vmm.free_address", [](Vmm& vmm) { return vmm.free_address(kAddress, kPage); }},
      {"vmm.create", [](Vmm& vmm) { return vmm.create(kPage, false).status(); }},
      {"vmm.release", [](Vmm& vmm) { return vmm.release(kHandle); }},
      {"vmm.map", [](Vmm& vmm) { return vmm.map(kAddress, kPage, kHandle); }},
      {"vmm.unmap", [](Vmm& vmm) { return vmm.unmap(kAddress, kPage); }},
      {"vmm.set_access",
       [](Vmm& vmm) { return vmm.set_access(kAddress, kPage, Access::kReadWrite); }},
      {"vmm.export", [](Vmm& vmm) { return vmm.export_handle(kHandle).status(); }},
      {"vmm.import", [](Vmm& vmm) { return vmm.import_handle(5).status(); }},
      {"vmm.allocate", [](Vmm& vmm) { return vmm.allocate(kPage).status(); }},
      {"vmm.free", [](Vmm& vmm) { return vmm.free(kAddress); }},
      {"vmm.share", [](Vmm& vmm) { return vmm.share(kAddress).status(); }},
      {"vmm.open_shared", [](Vmm& vmm) { return vmm.open_shared({}).status(); }},
      {"vmm.close_shared", [](Vmm& vmm) { return vmm.close_shared(kAddress); }},
      {"vmm.copy", [](Vmm& vmm) { return vmm.copy_to_device(kAddress, bytes, sizeof bytes); }},
      {"vmm.copy", [](Vmm& vmm) { return vmm.copy_from_device(bytes, kAddress, sizeof bytes); }},
      {"vmm.fill", [](Vmm& vmm) { return vmm.fill(kAddress, 1, kPage); }},
      {"vmm.synchronize", [](Vmm& vmm) { return vmm.synchronize(); }},
  };
  return calls;
}

class CudaVmmTest : public ::testing::Test {
 protected:
  std::unique_ptr<CudaVmm> open(int device = 0) {
    auto vmm = CudaVmm::open(driver_, device);
    EXPECT_TRUE(vmm.ok()) << vmm.status().to_string();
    return std::move(*vmm);
  }
  NiceMock<MockDriver> mock_;
  const CudaDriver driver_ = MockDriver::table();
};

TEST_F(CudaVmmTest, OpenInitialisesTheDriverThenRetainsThePrimaryContextOfItsDevice) {
  const InSequence in_order;
  EXPECT_CALL(mock_, init(0u));
  EXPECT_CALL(mock_, device_get(_, 3)).WillOnce(DoAll(SetArgPointee<0>(7), Return(0)));
  EXPECT_CALL(mock_, primary_ctx_retain(_, 7)).WillOnce(Return(0));
  EXPECT_TRUE(CudaVmm::open(driver_, 3).ok());
}

TEST_F(CudaVmmTest, OpenThatFailsSaysWhereAndHoldsNoContext) {
  EXPECT_CALL(mock_, primary_ctx_release(_)).Times(0);
  EXPECT_CALL(mock_, init(_)).WillOnce(Return(100)).WillRepeatedly(Return(0));
  EXPECT_EQ(CudaVmm::open(driver_, 0).status().native(), 100);
  EXPECT_CALL(mock_, device_get(_, 0));
  EXPECT_CALL(mock_, device_get(_, 9)).WillOnce(Return(101));
  const Status no_device = CudaVmm::open(driver_, 9).status();
  EXPECT_EQ(no_device.code(), Code::kDriver);
  EXPECT_EQ(no_device.to_string(), "vmm.open: device 9: driver (101): CUDA_ERROR_INVALID_DEVICE");
  EXPECT_CALL(mock_, primary_ctx_retain(_, _)).WillOnce(Return(2));
  EXPECT_EQ(CudaVmm::open(driver_, 0).status().code(), Code::kOutOfMemory);
}

TEST_F(CudaVmmTest, OnlyCloseGivesTheContextBackAndOnlyOnce) {
  auto vmm = open(1);
  auto dropped = open(1);
  EXPECT_CALL(mock_, primary_ctx_release(1)).WillOnce(Return(999)).WillOnce(Return(0));
  dropped.reset();
  EXPECT_EQ(vmm->close().native(), 999);
  EXPECT_TRUE(vmm->close().ok());
  EXPECT_TRUE(vmm->close().ok());
}

TEST_F(CudaVmmTest, ClosedItRefusesEveryCallAndLeavesTheDriverAlone) {
  auto vmm = open();
  ASSERT_TRUE(vmm->close().ok());
  StrictMock<MockDriver> untouched;
  EXPECT_EQ(vmm->granularity().status().code(), Code::kFailedPrecondition);
  for (const Call& call : faulty_calls()) {
    const Status status = call.make(*vmm);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << call.name;
    EXPECT_EQ(status.operation(), call.name);
  }
}

TEST_F(CudaVmmTest, PageCallsPassTheirArgumentsAndTouchNoContext) {
  auto vmm = open(1);
  EXPECT_CALL(mock_, ctx_get_current(_)).Times(0);
  EXPECT_CALL(mock_, ctx_set_current(_)).Times(0);
  EXPECT_CALL(mock_, mem_address_reserve(_, 4 * kPage, 0u, 0u, 0u))
      .WillOnce(DoAll(SetArgPointee<0>(kAddress), Return(0)));
  EXPECT_CALL(mock_, mem_create(_, kPage, _, 0u))
      .WillOnce([](cuda::AllocationHandle* handle, std::size_t, const cuda::AllocationProp* prop,
                   unsigned long long) {
        EXPECT_EQ(prop->type, cuda::kAllocationTypePinned);
        EXPECT_EQ(prop->requested_handle_types, cuda::kHandleTypeNone);
        EXPECT_EQ(prop->location.type, cuda::kLocationTypeDevice);
        EXPECT_EQ(prop->location.id, 1);
        EXPECT_EQ(prop->win32_meta_data, nullptr);
        *handle = 0x1234;
        return 0;
      });
  EXPECT_CALL(mock_, mem_map(kAddress, kPage, 0u, 0x1234u, 0u));
  EXPECT_CALL(mock_, mem_set_access(kAddress, kPage, _, 1u))
      .WillOnce([](cuda::Pointer, std::size_t, const cuda::AccessDesc* access, std::size_t) {
        EXPECT_EQ(access->location.type, cuda::kLocationTypeDevice);
        EXPECT_EQ(access->location.id, 1);
        EXPECT_EQ(access->flags, cuda::kAccessRead);
        return 0;
      });
  EXPECT_CALL(mock_, mem_unmap(kAddress, kPage));
  EXPECT_CALL(mock_, mem_release(0x1234u));
  EXPECT_CALL(mock_, mem_address_free(kAddress, 4 * kPage));
  EXPECT_EQ(*vmm->reserve(4 * kPage), kAddress);
  EXPECT_EQ(*vmm->create(kPage, false), kHandle);
  EXPECT_TRUE(vmm->map(kAddress, kPage, kHandle).ok());
  EXPECT_TRUE(vmm->set_access(kAddress, kPage, Access::kRead).ok());
  EXPECT_TRUE(vmm->unmap(kAddress, kPage).ok());
  EXPECT_TRUE(vmm->release(kHandle).ok());
  EXPECT_TRUE(vmm->free_address(kAddress, 4 * kPage).ok());
}

TEST_F(CudaVmmTest, ExportablePagesTravelAsDescriptors) {
  auto vmm = open();
  EXPECT_CALL(mock_, mem_create(_, _, _, _))
      .WillOnce([](cuda::AllocationHandle*, std::size_t, const cuda::AllocationProp* prop,
                   unsigned long long) {
        EXPECT_EQ(prop->requested_handle_types, cuda::kHandleTypeDescriptor);
        return 0;
      });
  EXPECT_CALL(mock_, mem_export(_, 0x1234u, cuda::kHandleTypeDescriptor, 0u))
      .WillOnce([](void* shareable, cuda::AllocationHandle, int, unsigned long long) {
        const int fd = 42;
        std::memcpy(shareable, &fd, sizeof fd);
        return 0;
      });
  EXPECT_CALL(mock_, mem_import(_, Eq(reinterpret_cast<void*>(42)), cuda::kHandleTypeDescriptor))
      .WillOnce(DoAll(SetArgPointee<0>(0x99), Return(0)));
  EXPECT_TRUE(vmm->create(kPage, true).ok());
  EXPECT_EQ(*vmm->export_handle(kHandle), 42);
  EXPECT_EQ(*vmm->import_handle(42), MemHandle{0x99});
}

TEST_F(CudaVmmTest, PlainMemoryTravelsByName) {
  auto vmm = open();
  cuda::IpcMemHandle named{};
  for (std::size_t i = 0; i < sizeof named.reserved; ++i) {
    named.reserved[i] = static_cast<char>(i - 32);
  }
  EXPECT_CALL(mock_, ipc_get_mem_handle(_, kAddress))
      .WillOnce(DoAll(SetArgPointee<0>(named), Return(0)));
  EXPECT_CALL(mock_, ipc_open_mem_handle(_, _, cuda::kIpcLazyEnablePeerAccess))
      .WillOnce([&](cuda::Pointer* address, const cuda::IpcMemHandle& given, unsigned) {
        EXPECT_EQ(std::memcmp(&given, &named, sizeof named), 0);
        *address = kAddress + kPage;
        return 0;
      });
  EXPECT_CALL(mock_, ipc_close_mem_handle(kAddress + kPage));
  const auto handle = vmm->share(kAddress);
  ASSERT_TRUE(handle.ok());
  const auto opened = vmm->open_shared(*handle);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(*opened, kAddress + kPage);
  EXPECT_TRUE(vmm->close_shared(*opened).ok());
}

TEST_F(CudaVmmTest, SizesComeFromTheDriver) {
  auto vmm = open();
  EXPECT_CALL(mock_, mem_get_allocation_granularity(_, _, cuda::kGranularityMinimum))
      .WillOnce(DoAll(SetArgPointee<0>(kPage), Return(0)));
  EXPECT_CALL(mock_, mem_get_info(_, _))
      .WillOnce(DoAll(SetArgPointee<0>(3), SetArgPointee<1>(8), Return(0)));
  EXPECT_EQ(*vmm->granularity(), kPage);
  const auto info = vmm->memory_info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->free, 3u);
  EXPECT_EQ(info->total, 8u);
}

TEST_F(CudaVmmTest, AnAnswerOfTheDriverBecomesAStatusWithItsNumberNameAndObject) {
  auto vmm = open();
  EXPECT_CALL(mock_, mem_map(_, _, _, _, _))
      .WillOnce(Return(2))
      .WillOnce(Return(1))
      .WillOnce(Return(54321));
  const Status full = vmm->map(kAddress, kPage, kHandle);
  EXPECT_EQ(full.code(), Code::kOutOfMemory);
  EXPECT_EQ(full.native(), 2);
  EXPECT_EQ(full.to_string(),
            "vmm.map: address 0x7f0000000000, 2097152 bytes: out_of_memory (2): "
            "CUDA_ERROR_OUT_OF_MEMORY");
  const Status refused = vmm->map(kAddress, kPage, kHandle);
  EXPECT_EQ(refused.code(), Code::kDriver);
  EXPECT_EQ(refused.native(), 1);
  EXPECT_EQ(refused.text(), "CUDA_ERROR_INVALID_VALUE");
  EXPECT_EQ(vmm->map(kAddress, kPage, kHandle).text(), "unknown CUresult");
}

TEST_F(CudaVmmTest, AnInjectedFaultIsAnsweredAsIfByTheDriverWhichIsNotCalled) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  auto vmm = open();
  for (const Call& call : faulty_calls()) {
    TestHooks hooks;
    hooks.fail(call.name, 2);
    StrictMock<MockDriver> strict;
    EXPECT_CALL(strict, get_error_name(2, _))
        .WillOnce(DoAll(SetArgPointee<1>("CUDA_ERROR_OUT_OF_MEMORY"), Return(0)));
    const Status status = call.make(*vmm);
    EXPECT_EQ(status.code(), Code::kOutOfMemory) << call.name;
    EXPECT_EQ(status.native(), 2) << call.name;
    EXPECT_EQ(status.operation(), call.name);
    const auto seen = hooks.seen();
    ASSERT_EQ(seen.size(), 2u) << call.name;
    EXPECT_EQ(seen[0].name, call.name);
    EXPECT_EQ(seen[1].name, std::string(call.name) + ".done");
    EXPECT_EQ(seen[1].value, 2) << call.name;
    EXPECT_EQ(seen[1].key, seen[0].key) << call.name;
  }
}

TEST_F(CudaVmmTest, EveryFaultReportsTheDriversOwnAnswerAtItsEnd) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  auto vmm = open();
  ON_CALL(mock_, mem_unmap(_, _)).WillByDefault(Return(1));
  TestHooks hooks;
  EXPECT_FALSE(vmm->unmap(kAddress, kPage).ok());
  using Seen = TestHooks::Seen;
  const auto key = static_cast<std::int64_t>(kAddress);
  EXPECT_THAT(hooks.seen(), ::testing::ElementsAre(Seen{"vmm.unmap", key, 0, ""},
                                                   Seen{"vmm.unmap.done", key, 1, ""}));
}

// The calls that need a context work on the owner's, from a thread with none, with another's, and
// with the owner's own; they leave it as it was.
TEST_F(CudaVmmTest, CallsThatNeedAContextRunInTheOwnersAndLeaveTheThreadsAsItWas) {
  auto vmm = open(1);
  const auto in_ours = [&](auto&&...) {
    EXPECT_EQ(MockDriver::thread_context(), MockDriver::primary(1));
    return 0;
  };
  EXPECT_CALL(mock_, mem_get_info(_, _)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, mem_alloc(_, _)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, mem_free(_)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, memcpy_to_device(_, _, _)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, memcpy_from_device(_, _, _)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, memset_bytes(_, _, _)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, ctx_synchronize()).Times(6).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, ipc_get_mem_handle(_, _)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, ipc_open_mem_handle(_, _, _)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, ipc_close_mem_handle(_)).Times(3).WillRepeatedly(in_ours);
  EXPECT_CALL(mock_, ctx_set_current(_)).Times(2 * 2 * 10);
  for (cuda::Context before :
       {cuda::Context{nullptr}, MockDriver::primary(0), MockDriver::primary(1)}) {
    std::thread([&] {
      MockDriver::thread_context() = before;
      for (const Call& call : faulty_calls()) {
        EXPECT_TRUE(call.make(*vmm).ok()) << call.name;
        EXPECT_EQ(MockDriver::thread_context(), before) << call.name;
      }
    }).join();
  }
}

TEST_F(CudaVmmTest, AContextThatCannotBeSetIsTheAnswerAndTheWorkIsNotTried) {
  auto vmm = open();
  EXPECT_CALL(mock_, memset_bytes(_, _, _)).Times(0);
  EXPECT_CALL(mock_, ctx_set_current(_)).WillOnce(Return(709));
  EXPECT_EQ(vmm->fill(kAddress, 0, kPage).native(), 709);
  EXPECT_CALL(mock_, ctx_get_current(_)).WillOnce(Return(4));
  EXPECT_EQ(vmm->fill(kAddress, 0, kPage).native(), 4);
}

TEST_F(CudaVmmTest, CopiesAndFillsPassTheirArguments) {
  auto vmm = open();
  char host[16];
  EXPECT_CALL(mock_, memcpy_to_device(kAddress, host, 5u));
  EXPECT_CALL(mock_, memcpy_from_device(host, kAddress, 6u));
  {
    // The driver's fill is under way when its call returns; ours has ended.
    const ::testing::InSequence in_order;
    EXPECT_CALL(mock_, memset_bytes(kAddress, 7, 8u));
    EXPECT_CALL(mock_, ctx_synchronize());
  }
  EXPECT_CALL(mock_, mem_alloc(_, 9u)).WillOnce(DoAll(SetArgPointee<0>(kAddress), Return(0)));
  EXPECT_CALL(mock_, mem_free(kAddress));
  EXPECT_TRUE(vmm->copy_to_device(kAddress, host, 5).ok());
  EXPECT_TRUE(vmm->copy_from_device(host, kAddress, 6).ok());
  EXPECT_TRUE(vmm->fill(kAddress, 7, 8).ok());
  EXPECT_EQ(*vmm->allocate(9), kAddress);
  EXPECT_TRUE(vmm->free(kAddress).ok());
}

TEST(CudaVmmOpen, SaysWhichLibraryIsMissing) {
  const Status status = CudaVmm::open("/nowhere/libcuda.so.1", 0).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.to_string(), HasSubstr("/nowhere/libcuda.so.1"));
}

}  // namespace
}  // namespace kv
