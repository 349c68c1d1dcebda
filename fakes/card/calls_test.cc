// Calls that no recorded fact describes: what they answer is the driver interface's own word.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fakes/card/testing.h"

namespace kv::card {
namespace {

// Runs `body` in a process that has the card up.
void with_the_card(const std::function<void(const Driver&)>& body, int devices = 1) {
  const CardFolder card(64 * kPageSize, devices);
  Process process([&](const Driver& driver, const Partner&) {
    driver.start();
    body(driver);
  });
  EXPECT_EQ(process.end(), "exit 0");
}

// A call that the probes' table does not have.
template <typename Function>
Function* look_up(const char* symbol) {
  void* library = ::dlopen(kLibrary.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* found = ::dlsym(library, symbol);
  EXPECT_NE(found, nullptr) << symbol;
  return reinterpret_cast<Function*>(found);
}

TEST(Device, IsDescribed) {
  with_the_card(
      [](const Driver& driver) {
        int value = 0;
        auto* attribute = look_up<CUresult(int*, int, CUdevice)>("cuDeviceGetAttribute");
        EXPECT_EQ(attribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
                  CUDA_SUCCESS);
        EXPECT_EQ(value, 1);
        EXPECT_EQ(attribute(&value, 1, 2), CUDA_ERROR_INVALID_DEVICE);
        EXPECT_EQ(attribute(&value, 0, 0), CUDA_ERROR_INVALID_VALUE);
        std::vector<char> name(8, 'x');
        EXPECT_EQ(look_up<CUresult(char*, int, CUdevice)>("cuDeviceGetName")(name.data(), 8, 0),
                  CUDA_SUCCESS);
        EXPECT_STREQ(name.data(), "kvdrill");
        CUuuid first = {}, second = {};
        auto* uuid = look_up<CUresult(CUuuid*, CUdevice)>("cuDeviceGetUuid_v2");
        EXPECT_EQ(uuid(&first, 0), CUDA_SUCCESS);
        EXPECT_EQ(uuid(&second, 1), CUDA_SUCCESS);
        EXPECT_NE(std::string(first.bytes, 16), std::string(second.bytes, 16));
        CUdevice device = -1;
        EXPECT_EQ(driver.cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
        EXPECT_EQ(driver.cuInit(1), CUDA_ERROR_INVALID_VALUE);
      },
      2);
}

TEST(Errors, HaveNamesBeforeAndAfterInitAndNoneForInventedCodes) {
  const CardFolder card;
  Process process([](const Driver& driver, const Partner&) {
    EXPECT_EQ(driver.name_of(CUDA_ERROR_ILLEGAL_ADDRESS), "CUDA_ERROR_ILLEGAL_ADDRESS");
    driver.start();
    EXPECT_EQ(driver.name_of(CUDA_SUCCESS), "CUDA_SUCCESS");
    EXPECT_EQ(driver.name_of(CUDA_ERROR_UNKNOWN), "CUDA_ERROR_UNKNOWN");
    const char* text = nullptr;
    EXPECT_EQ(driver.cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
    auto* describe = look_up<CUresult(CUresult, const char**)>("cuGetErrorString");
    EXPECT_EQ(describe(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
    EXPECT_STREQ(text, "out of memory");
  });
  EXPECT_EQ(process.end(), "exit 0");
}

TEST(Lookup, FindsTheNewestVersionByTheBareName) {
  with_the_card([](const Driver& driver) {
    void* found = nullptr;
    int status = -1;
    auto* find =
        look_up<CUresult(const char*, void**, int, std::uint64_t, int*)>("cuGetProcAddress_v2");
    EXPECT_EQ(find("cuMemAlloc", &found, 12000, 0, &status), CUDA_SUCCESS);
    EXPECT_EQ(found, reinterpret_cast<void*>(driver.cuMemAlloc));
    EXPECT_EQ(status, 0);
    EXPECT_EQ(find("cuMemMap", &found, 12000, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(found, reinterpret_cast<void*>(driver.cuMemMap));
    EXPECT_EQ(find("cuNoSuchCall", &found, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(status, 1);
  });
}

TEST(Context, IsCountedAndStacked) {
  with_the_card([](const Driver& driver) {
    auto* state = look_up<CUresult(CUdevice, unsigned*, int*)>("cuDevicePrimaryCtxGetState");
    auto* push = look_up<CUresult(CUcontext)>("cuCtxPushCurrent_v2");
    auto* pop = look_up<CUresult(CUcontext*)>("cuCtxPopCurrent_v2");
    CUcontext first = nullptr, again = nullptr, popped = nullptr;
    EXPECT_EQ(driver.cuCtxGetCurrent(&first), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    EXPECT_EQ(first, again);
    EXPECT_EQ(push(first), CUDA_SUCCESS);
    EXPECT_EQ(pop(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, first);
    EXPECT_EQ(push(reinterpret_cast<CUcontext>(&popped)), CUDA_ERROR_INVALID_CONTEXT);
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(state(0, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(active, 1);
    EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(state(0, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(active, 0);
    EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(driver.cuCtxSetCurrent(first), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  });
}

TEST(Context, OfItsOwnGivesItsPlainMemoryBackWhenDestroyed) {
  with_the_card([](const Driver& driver) {
    const std::int64_t before = driver.free_bytes();
    CUcontext own = nullptr;
    EXPECT_EQ(look_up<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&own, 0, 0),
              CUDA_SUCCESS);
    CUdeviceptr plain = 0;
    EXPECT_EQ(driver.cuMemAlloc(&plain, 4 * kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(look_up<CUresult(CUcontext)>("cuCtxDestroy_v2")(own), CUDA_SUCCESS);
    EXPECT_EQ(driver.free_bytes(), before);  // the one before it is current again
  });
}

TEST(PlainMemory, IsExactlyAsLargeAsItWasAskedFor) {
  with_the_card([](const Driver& driver) {
    CUdeviceptr plain = 0, start = 0;
    EXPECT_EQ(driver.cuMemAlloc(&plain, 1000), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemsetD8(plain, 7, 1000), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemsetD8(plain, 7, 1001), CUDA_ERROR_INVALID_VALUE);
    std::size_t size = 0;
    auto* range =
        look_up<CUresult(CUdeviceptr*, std::size_t*, CUdeviceptr)>("cuMemGetAddressRange_v2");
    EXPECT_EQ(range(&start, &size, plain + 999), CUDA_SUCCESS);
    EXPECT_EQ(start, plain);
    EXPECT_EQ(size, 1000u);
    EXPECT_EQ(driver.cuMemFree(plain + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.cuMemFree(plain), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemFree(0), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemAlloc(&plain, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.cuMemAlloc(&plain, 65 * kPageSize), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST(PlainMemory, IsNotMappedOrUnmappedByPageCalls) {
  with_the_card([](const Driver& driver) {
    CUdeviceptr plain = 0;
    EXPECT_EQ(driver.cuMemAlloc(&plain, kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemUnmap(plain, kPageSize), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.access(plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.cuMemMap(plain, kPageSize, 0, driver.create(), 0), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Reservation, IsAlignedAsAsked) {
  with_the_card([](const Driver& driver) {
    CUdeviceptr address = 0;
    EXPECT_EQ(driver.cuMemAddressReserve(&address, kPageSize, 64 * kPageSize, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(address % (64 * kPageSize), 0u);
    EXPECT_EQ(driver.cuMemAddressReserve(&address, std::uint64_t{1} << 60, 0, 0, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST(Handle, TellsItsProperties) {
  with_the_card(
      [](const Driver& driver) {
        CUmemAllocationProp prop = {};
        const auto handle = driver.create(kPageSize, true, 1);
        EXPECT_EQ(driver.cuMemGetAllocationPropertiesFromHandle(&prop, handle), CUDA_SUCCESS);
        EXPECT_EQ(prop.location.id, 1);
        EXPECT_EQ(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      },
      2);
}

TEST(Copy, MovesBytesBetweenUnevenPieces) {
  with_the_card([](const Driver& driver) {
    const CUdeviceptr base = driver.reserve(8), other = base + 4 * kPageSize;
    for (int page = 0; page < 6; ++page) driver.page_at(base + page * kPageSize);
    std::vector<unsigned> bytes(2 * kPageSize / sizeof(unsigned));
    for (std::size_t index = 0; index < bytes.size(); ++index) {
      bytes[index] = static_cast<unsigned>(index);
    }
    EXPECT_EQ(driver.cuMemcpyHtoD(base + 100, bytes.data(), 2 * kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemcpyDtoD(other, base + 100, 2 * kPageSize), CUDA_SUCCESS);
    std::vector<unsigned> seen(bytes.size());
    EXPECT_EQ(driver.cuMemcpyDtoH(seen.data(), other, 2 * kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(seen, bytes);
    EXPECT_EQ(driver.cuMemsetD32(other, 0x01020304, 3), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemcpyDtoH(seen.data(), other, 16), CUDA_SUCCESS);
    EXPECT_THAT(std::vector<unsigned>(seen.begin(), seen.begin() + 4),
                testing::ElementsAre(0x01020304, 0x01020304, 0x01020304, 3));
  });
}

TEST(Copy, FromAHostAddressThatIsNotThereIsRefused) {
  with_the_card([](const Driver& driver) {
    const CUdeviceptr base = driver.reserve(2);
    driver.page_at(base);
    // Device memory handed over as if it were the host's.
    EXPECT_EQ(driver.cuMemcpyHtoD(base, reinterpret_cast<void*>(base + kPageSize), 16),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

TEST(Import, TwiceCountsTheBytesOnce) {
  const CardFolder card;
  Process process([](const Driver& driver, const Partner&) {
    driver.start();
    const auto handle = driver.create(kPageSize, true);
    int fd = -1;
    must(driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0),
         "export");
    CUmemGenericAllocationHandle imported = 0;
    must(driver.cuMemImportFromShareableHandle(
             &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
         "import");
  });
  EXPECT_EQ(process.end(), "exit 0");
  EXPECT_EQ(card.ledger().owners[0].bytes, kPageSize);
  EXPECT_EQ(card.ledger().owners[0].handles, 2u);
}

}  // namespace
}  // namespace kv::card
