// CudaVmm and the allocator on the fake card: what the interface promises, kept by a driver library
// that answers as the recorded one. (What the driver itself answers is tested in fakes/card.)
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/card/kvcard.h"
#include "fakes/doubles/test_hooks.h"
#include "kvcore/driver/cuda_vmm.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

constexpr const char* kCard = KVDRILL_BUILD_DIR "/card/libcuda.so.1";
constexpr std::size_t kPage = 2u << 20;
constexpr std::size_t kDeviceBytes = 32 * kPage;

// A card of this process alone, with two small devices. It reads its environment when it is first
// initialised, so this comes before all tests.
class CardEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    ::unsetenv("KVDRILL_CARD");
    ::setenv("KVDRILL_CARD_DEVICES", "2", 1);
    ::setenv("KVDRILL_CARD_BYTES", std::to_string(kDeviceBytes).c_str(), 1);
  }
};
[[maybe_unused]] const auto* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new CardEnvironment);

class CardVmm : public ::testing::Test {
 protected:
  CardVmm() : vmm_(open(0)), free_at_start_(free_bytes()) {}
  ~CardVmm() override {
    EXPECT_EQ(free_bytes(), free_at_start_) << "the test left memory on the card";
    EXPECT_TRUE(vmm_->close().ok());
  }
  static std::unique_ptr<CudaVmm> open(int device) {
    auto vmm = CudaVmm::open(kCard, device);
    EXPECT_TRUE(vmm.ok()) << vmm.status().to_string();
    return std::move(*vmm);
  }
  std::size_t free_bytes() { return vmm_->memory_info()->free; }

  const std::unique_ptr<CudaVmm> vmm_;
  const std::size_t free_at_start_;
};

// A page that can be read and written, while the object lives.
struct MappedPage {
  MappedPage(Vmm& vmm, DeviceAddress at, MemHandle memory) : vmm_(vmm), address(at) {
    EXPECT_TRUE(vmm_.map(address, kPage, memory).ok());
    EXPECT_TRUE(vmm_.set_access(address, kPage, Access::kReadWrite).ok());
  }
  ~MappedPage() { EXPECT_TRUE(vmm_.unmap(address, kPage).ok()); }
  Vmm& vmm_;
  const DeviceAddress address;
};

TEST_F(CardVmm, OneTablePerPathAndEveryCallInIt) {
  const auto driver = load_cuda_driver(kCard);
  ASSERT_TRUE(driver.ok()) << driver.status().to_string();
  EXPECT_EQ(*load_cuda_driver(kCard), *driver);
#define KV_CHECK_CALL_(member, name, symbol, parameters) EXPECT_NE((*driver)->member, nullptr);
  KV_CUDA_CALLS(KV_CHECK_CALL_)
#undef KV_CHECK_CALL_
}

TEST_F(CardVmm, ADeviceThatIsNotThereIsRefused) {
  const Status status = CudaVmm::open(kCard, 2).status();
  EXPECT_EQ(status.code(), Code::kDriver);
  EXPECT_EQ(status.native(), 101);
  EXPECT_EQ(status.text(), "CUDA_ERROR_INVALID_DEVICE");
}

TEST_F(CardVmm, AClosedOneMayBeOpenedAnew) {
  auto other = open(1);
  ASSERT_TRUE(other->close().ok());
  other = open(1);
  EXPECT_TRUE(other->memory_info().ok());
  EXPECT_TRUE(other->close().ok());
}

TEST_F(CardVmm, APageLivesFromCreateToTheLastOfReleaseAndUnmap) {
  EXPECT_EQ(*vmm_->granularity(), kPage);
  EXPECT_EQ(vmm_->memory_info()->total, kDeviceBytes);
  const DeviceAddress base = *vmm_->reserve(4 * kPage);
  EXPECT_EQ(free_bytes(), free_at_start_);
  const MemHandle memory = *vmm_->create(kPage, false);
  EXPECT_EQ(free_bytes(), free_at_start_ - kPage);
  ASSERT_TRUE(vmm_->map(base, kPage, memory).ok());
  std::uint64_t word = 0;
  EXPECT_EQ(vmm_->copy_from_device(&word, base, sizeof word).native(), 1) << "no access yet";
  ASSERT_TRUE(vmm_->set_access(base, kPage, Access::kReadWrite).ok());
  ASSERT_TRUE(vmm_->release(memory).ok());
  EXPECT_EQ(free_bytes(), free_at_start_ - kPage);
  EXPECT_TRUE(vmm_->fill(base, 0x5a, kPage).ok());
  EXPECT_TRUE(vmm_->copy_from_device(&word, base + kPage - sizeof word, sizeof word).ok());
  EXPECT_EQ(word, 0x5a5a5a5a5a5a5a5au);
  EXPECT_EQ(vmm_->free_address(base, 4 * kPage).native(), 1) << "something is mapped in it";
  EXPECT_TRUE(vmm_->unmap(base, kPage).ok());
  EXPECT_EQ(free_bytes(), free_at_start_);
  EXPECT_EQ(vmm_->copy_from_device(&word, base, sizeof word).native(), 1);
  EXPECT_TRUE(vmm_->free_address(base, 4 * kPage).ok());
}

TEST_F(CardVmm, TwoMappingsOfOneHandleAreTheSameBytes) {
  const DeviceAddress base = *vmm_->reserve(2 * kPage);
  const MemHandle memory = *vmm_->create(kPage, false);
  {
    const MappedPage one(*vmm_, base, memory);
    const MappedPage two(*vmm_, base + kPage, memory);
    const std::uint64_t sent = 0x0123456789abcdef;
    std::uint64_t got = 0;
    EXPECT_TRUE(vmm_->copy_to_device(one.address + 8, &sent, sizeof sent).ok());
    EXPECT_TRUE(vmm_->copy_from_device(&got, two.address + 8, sizeof got).ok());
    EXPECT_EQ(got, sent);
  }
  EXPECT_TRUE(vmm_->release(memory).ok());
  EXPECT_TRUE(vmm_->free_address(base, 2 * kPage).ok());
}

TEST_F(CardVmm, OutOfMemoryHasACodeOfItsOwn) {
  const Status pages = vmm_->create(kDeviceBytes + kPage, false).status();
  EXPECT_EQ(pages.code(), Code::kOutOfMemory);
  EXPECT_EQ(pages.native(), 2);
  EXPECT_EQ(pages.text(), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(vmm_->allocate(kDeviceBytes + kPage).status().code(), Code::kOutOfMemory);
}

TEST_F(CardVmm, RightsAreKept) {
  const DeviceAddress base = *vmm_->reserve(kPage);
  const MemHandle memory = *vmm_->create(kPage, false);
  {
    const MappedPage page(*vmm_, base, memory);
    std::uint64_t word = 0;
    EXPECT_TRUE(vmm_->set_access(base, kPage, Access::kRead).ok());
    EXPECT_TRUE(vmm_->copy_from_device(&word, base, sizeof word).ok());
    EXPECT_EQ(vmm_->copy_to_device(base, &word, sizeof word).native(), 1);
    EXPECT_TRUE(vmm_->set_access(base, kPage, Access::kNone).ok());
    EXPECT_EQ(vmm_->copy_from_device(&word, base, sizeof word).native(), 1);
  }
  EXPECT_TRUE(vmm_->release(memory).ok());
  EXPECT_TRUE(vmm_->free_address(base, kPage).ok());
}

TEST_F(CardVmm, AnyThreadWorksOnTheOwnersDeviceAndKeepsItsOwnContext) {
  const auto other = open(1);
  const CudaDriver& driver = **load_cuda_driver(kCard);
  const DeviceAddress plain = *vmm_->allocate(kPage);
  std::thread([&] {
    cuda::Context current = nullptr;
    EXPECT_TRUE(vmm_->fill(plain, 1, kPage).ok()) << "from a thread without a context";
    EXPECT_EQ(driver.ctx_get_current(&current), 0);
    EXPECT_EQ(current, nullptr);
    cuda::Context theirs = nullptr;
    EXPECT_EQ(driver.primary_ctx_retain(&theirs, 1), 0);
    EXPECT_EQ(driver.ctx_set_current(theirs), 0);
    std::uint8_t byte = 0;
    EXPECT_TRUE(vmm_->copy_from_device(&byte, plain, 1).ok()) << "from a thread of device 1";
    EXPECT_EQ(byte, 1);
    EXPECT_EQ(vmm_->memory_info()->free, free_at_start_ - kPage);
    EXPECT_EQ(other->memory_info()->free, kDeviceBytes);
    EXPECT_TRUE(vmm_->synchronize().ok());
    EXPECT_EQ(driver.ctx_get_current(&current), 0);
    EXPECT_EQ(current, theirs);
    EXPECT_EQ(driver.ctx_set_current(nullptr), 0);
    EXPECT_EQ(driver.primary_ctx_release(1), 0);
  }).join();
  EXPECT_TRUE(vmm_->free(plain).ok());
  EXPECT_TRUE(other->close().ok());
}

TEST_F(CardVmm, ADescriptorKeepsTheMemoryUntilItIsClosed) {
  const MemHandle exported = *vmm_->create(kPage, true);
  const int fd = *vmm_->export_handle(exported);
  const MemHandle imported = *vmm_->import_handle(fd);
  EXPECT_TRUE(vmm_->release(exported).ok());
  EXPECT_TRUE(vmm_->release(imported).ok());
  EXPECT_EQ(free_bytes(), free_at_start_ - kPage);
  EXPECT_EQ(::close(fd), 0);
  EXPECT_EQ(free_bytes(), free_at_start_);
  const MemHandle kept = *vmm_->create(kPage, false);
  EXPECT_EQ(vmm_->export_handle(kept).status().native(), 1) << "not made to be exported";
  EXPECT_TRUE(vmm_->release(kept).ok());
}

// ---- the allocator on the card

class CardAllocator : public CardVmm {
 protected:
  CardAllocator() { EXPECT_TRUE(allocator_->create_tensors(0, {2, 2, 32 * kPage, kPage}).ok()); }
  ~CardAllocator() override { EXPECT_TRUE(allocator_->release_all().ok()); }
  static std::int64_t page(int n) { return static_cast<std::int64_t>(n) * kPage; }

  const std::unique_ptr<KvAllocator> allocator_ = make_kv_allocator(*vmm_, {});
};

TEST_F(CardAllocator, MapsWhatCanBeReadAndWrittenAndGivesItBack) {
  ASSERT_TRUE(allocator_->map(0, {page(0), page(3)}).ok());
  EXPECT_EQ(free_bytes(), free_at_start_ - 8 * kPage);
  for (const int layer : {0, 1}) {
    for (const int buffer : {0, 1}) {
      const DeviceAddress at = *allocator_->tensor(0, layer) + 16 * kPage * buffer + page(3);
      EXPECT_TRUE(vmm_->fill(at, 9, kPage).ok());
      EXPECT_EQ(vmm_->fill(at + kPage, 9, 1).native(), 1);
    }
  }
  ASSERT_TRUE(allocator_->unmap(0, {page(0)}).ok());
  EXPECT_EQ(free_bytes(), free_at_start_ - 4 * kPage);
}

TEST_F(CardAllocator, ABatchThatDoesNotFitLeavesTheCardAsItWas) {
  ASSERT_TRUE(allocator_->map(0, {page(1)}).ok());
  const std::size_t before = free_bytes();
  std::vector<std::int64_t> batch;
  for (int n = 0; n < 16; ++n) batch.push_back(page(n));
  const Status status = allocator_->map(0, batch).status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory) << status.to_string();
  EXPECT_EQ(free_bytes(), before);
  EXPECT_FALSE(allocator_->counts().degraded);
  EXPECT_TRUE(allocator_->map(0, {page(0)}).ok());
}

TEST_F(CardAllocator, AFailedUnmapKeepsTheBytes) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  ASSERT_TRUE(allocator_->map(0, {page(2)}).ok());
  const DeviceAddress at = *allocator_->tensor(0, 0) + page(2);
  ASSERT_TRUE(vmm_->fill(at, 0x77, kPage).ok());
  TestHooks hooks;
  int unmaps = 0;
  hooks.on_reached([&](const TestHooks::Seen& seen) {
    if (seen.name == "vmm.unmap") hooks.fail("vmm.unmap", ++unmaps == 3 ? 1 : 0);
  });
  EXPECT_EQ(allocator_->unmap(0, {page(2)}).native(), 1);
  std::uint8_t byte = 0;
  EXPECT_TRUE(vmm_->copy_from_device(&byte, at + 5, 1).ok());
  EXPECT_EQ(byte, 0x77);
}

TEST_F(CardVmm, UnmappedAddressesOfAGroupWithAZeroPageReadZeros) {
  const auto allocator = make_kv_allocator(*vmm_, {});
  KvShape shape{2, 2, 32 * kPage, kPage};
  shape.zero_page = true;
  ASSERT_TRUE(allocator->create_tensors(0, shape).ok());
  EXPECT_EQ(free_bytes(), free_at_start_ - kPage) << "one page for all of them";
  const DeviceAddress last = *allocator->address(0, 1, 1, 15 * kPage);
  std::uint64_t word = 1;
  EXPECT_TRUE(vmm_->copy_from_device(&word, last + 8, sizeof word).ok());
  EXPECT_EQ(word, 0u);
  EXPECT_EQ(vmm_->copy_to_device(last, &word, sizeof word).native(), 1) << "it can be written";
  ASSERT_TRUE(allocator->map(0, {15 * kPage}).ok());
  EXPECT_TRUE(vmm_->fill(last, 9, kPage).ok());
  ASSERT_TRUE(allocator->unmap(0, {15 * kPage}).ok());
  EXPECT_TRUE(vmm_->copy_from_device(&word, last + 8, sizeof word).ok());
  EXPECT_EQ(word, 0u);
  EXPECT_TRUE(allocator->release_all().ok());
}

// Work in flight on the card, as a stream that is held.
class WorkInFlight {
 public:
  explicit WorkInFlight(DeviceAddress address) {
    EXPECT_EQ(driver_.primary_ctx_retain(&context_, 0), 0);
    EXPECT_EQ(driver_.ctx_set_current(context_), 0);
    EXPECT_EQ(control<decltype(&kvcardHoldStream)>("kvcardHoldStream")(nullptr, address, kPage),
              0u);
    EXPECT_EQ(control<decltype(&kvcardAwaitHold)>("kvcardAwaitHold")(nullptr), 0u);
  }
  ~WorkInFlight() {
    EXPECT_EQ(driver_.ctx_set_current(nullptr), 0);
    EXPECT_EQ(driver_.primary_ctx_release(0), 0);
    ::dlclose(card_);
  }
  WorkInFlight(const WorkInFlight&) = delete;
  WorkInFlight& operator=(const WorkInFlight&) = delete;
  void end() {
    EXPECT_EQ(control<decltype(&kvcardReleaseStream)>("kvcardReleaseStream")(nullptr), 0u);
  }

 private:
  template <typename Function>
  Function control(const char* name) {
    return reinterpret_cast<Function>(::dlsym(card_, name));
  }
  void* const card_ = ::dlopen(kCard, RTLD_NOW | RTLD_NOLOAD);
  const CudaDriver& driver_ = **load_cuda_driver(kCard);
  cuda::Context context_ = nullptr;
};

// `batch`, which takes something off that `work` uses, unmaps nothing before that has ended: under
// it, the work would die and the context with it (recorded).
void expect_waits(WorkInFlight& work, const std::function<Status()>& batch) {
  std::atomic<bool> ended{false};
  std::promise<void> reached;
  std::atomic<int> first{0};
  TestHooks hooks;
  hooks.on_reached([&](const TestHooks::Seen& seen) {
    EXPECT_TRUE(seen.name != "vmm.unmap" || ended.load()) << "unmapped under work in flight";
    if (first++ == 0) reached.set_value();
  });
  auto done = std::async(std::launch::async, batch);
  reached.get_future().wait();
  ended = true;
  work.end();
  const Status status = done.get();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(CardAllocator, UnmapWaitsForWorkInFlight) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  ASSERT_TRUE(allocator_->map(0, {page(0)}).ok());
  WorkInFlight work(*allocator_->tensor(0, 1));
  expect_waits(work, [&] { return allocator_->unmap(0, {page(0)}); });
  EXPECT_TRUE(vmm_->synchronize().ok()) << "the context was poisoned";
}

TEST_F(CardAllocator, MapWaitsForWorkThatReadsTheZeroPage) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  KvShape shape{2, 2, 32 * kPage, kPage};
  shape.zero_page = true;
  ASSERT_TRUE(allocator_->create_tensors(1, shape).ok());
  WorkInFlight work(*allocator_->tensor(1, 1));
  expect_waits(work, [&] { return allocator_->map(1, {page(0)}).status(); });
  EXPECT_TRUE(vmm_->synchronize().ok()) << "the context was poisoned";
}

}  // namespace
}  // namespace kv
