// The ledger's file: its layout, who makes it, and what stays in it.
#include "fakes/card/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "fakes/card/testing.h"
#include "harness/process/card_ledger.h"

namespace kv::card {
namespace {

using testing::HasSubstr;

// The harness reads the file by a layout of its own.
#define SAME_MEMBER(type, member)                                          \
  static_assert(offsetof(type, member) == offsetof(drill::type, member) && \
                sizeof(type::member) == sizeof(drill::type::member))
SAME_MEMBER(LedgerHeader, magic);
SAME_MEMBER(LedgerHeader, version);
SAME_MEMBER(LedgerHeader, devices);
SAME_MEMBER(LedgerHeader, device_size);
SAME_MEMBER(LedgerHeader, owners);
SAME_MEMBER(LedgerHeader, owner_size);
SAME_MEMBER(LedgerHeader, owner_capacity);
SAME_MEMBER(LedgerHeader, devices_offset);
SAME_MEMBER(LedgerHeader, owners_offset);
SAME_MEMBER(LedgerHeader, change);
SAME_MEMBER(LedgerDevice, total_bytes);
SAME_MEMBER(LedgerDevice, used_bytes);
SAME_MEMBER(LedgerOwner, pid);
SAME_MEMBER(LedgerOwner, process);
SAME_MEMBER(LedgerOwner, bytes);
SAME_MEMBER(LedgerOwner, handles);
SAME_MEMBER(LedgerOwner, mappings);
SAME_MEMBER(LedgerOwner, reservations);
SAME_MEMBER(LedgerOwner, reserved_bytes);
SAME_MEMBER(LedgerOwner, allocations);
SAME_MEMBER(LedgerOwner, exports);
SAME_MEMBER(LedgerOwner, contexts);
#undef SAME_MEMBER
static_assert(sizeof(LedgerHeader) == sizeof(drill::LedgerHeader));
static_assert(sizeof(LedgerDevice) == sizeof(drill::LedgerDevice));
static_assert(sizeof(LedgerOwner) == sizeof(drill::LedgerOwner));

TEST(Ledger, SaysWhatAProcessHeldWhenItEnded) {
  const CardFolder card;
  set_variable("KVDRILL_PROCESS", "worker");
  Process process([](const Driver& driver, const Partner&) {
    driver.start();
    const CUdeviceptr base = driver.reserve(4);
    driver.page_at(base);
    must(driver.cuMemRelease(driver.page_at(base + kPageSize)), "cuMemRelease");
    CUdeviceptr plain = 0;
    must(driver.cuMemAlloc(&plain, kPageSize), "cuMemAlloc");
    int fd = -1;
    must(driver.cuMemExportToShareableHandle(&fd, driver.create(kPageSize, true),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
         "export");
  });
  const pid_t pid = process.partner().pid;
  EXPECT_EQ(process.end(), "exit 0");
  unset_variable("KVDRILL_PROCESS");
  const LedgerFile& file = card.ledger();
  ASSERT_EQ(file.header.owners, 1u);
  EXPECT_EQ(file.header.devices, 1u);
  const LedgerOwner& owner = file.owners[0];
  EXPECT_EQ(owner.pid, pid);
  EXPECT_STREQ(owner.process, "worker");
  EXPECT_EQ(owner.bytes, 4 * kPageSize);
  EXPECT_EQ(owner.handles, 2u);
  EXPECT_EQ(owner.mappings, 2u);
  EXPECT_EQ(owner.reservations, 1u);
  EXPECT_EQ(owner.reserved_bytes, 4 * kPageSize);
  EXPECT_EQ(owner.allocations, 1u);
  EXPECT_EQ(owner.exports, 1u);
  EXPECT_EQ(owner.contexts, 1u);
}

TEST(Ledger, IsReadByTheHarness) {
  const CardFolder card(std::uint64_t{64} << 20, 2);
  set_variable("KVDRILL_PROCESS", "worker");
  Process process([](const Driver& driver, const Partner&) {
    driver.start();
    driver.page_at(driver.reserve(4));
  });
  EXPECT_EQ(process.end(), "exit 0");
  unset_variable("KVDRILL_PROCESS");
  const auto state = drill::read_ledger(card.file("ledger"));
  ASSERT_TRUE(state.has_value()) << state.error();
  ASSERT_EQ(state->devices.size(), 2u);
  EXPECT_EQ(state->devices[1].total_bytes, std::uint64_t{64} << 20);
  ASSERT_EQ(state->owners.size(), 1u);
  EXPECT_EQ(state->owners[0].process, "worker");
  EXPECT_EQ(state->owners[0].bytes, kPageSize);
  EXPECT_EQ(state->owners[0].mappings, 1u);
}

TEST(Ledger, IsEmptyAfterAProcessThatGaveEverythingBack) {
  const CardFolder card;
  Process process([](const Driver& driver, const Partner&) {
    driver.start();
    const CUdeviceptr base = driver.reserve(4);
    const auto handle = driver.page_at(base);
    CUmemGenericAllocationHandle retained = 0;
    must(driver.cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base)), "retain");
    must(driver.cuMemRelease(retained), "cuMemRelease");
    must(driver.cuMemUnmap(base, kPageSize), "cuMemUnmap");
    must(driver.cuMemRelease(handle), "cuMemRelease");
    must(driver.cuMemAddressFree(base, 4 * kPageSize), "cuMemAddressFree");
    CUdeviceptr plain = 0;
    must(driver.cuMemAlloc(&plain, kPageSize), "cuMemAlloc");
    must(driver.cuMemFree(plain), "cuMemFree");
    must(driver.cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
  });
  EXPECT_EQ(process.end(), "exit 0");
  const LedgerOwner& owner = card.ledger().owners[0];
  EXPECT_EQ(owner.bytes + owner.handles + owner.mappings + owner.reservations +
                owner.reserved_bytes + owner.allocations + owner.exports + owner.contexts,
            0u);
  EXPECT_EQ(card.ledger().devices[0].used_bytes, 0u);
}

// Eight processes, ready to call cuInit, are let go at once.
void come_at_once() {
  constexpr int kProcesses = 8;
  const CardFolder card;
  int go[2] = {-1, -1};
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  std::vector<std::unique_ptr<Process>> processes;
  for (int index = 0; index < kProcesses; ++index) {
    processes.push_back(std::make_unique<Process>([&](const Driver& driver, const Partner&) {
      ::close(go[1]);
      char byte = 0;
      if (::read(go[0], &byte, 1) != 0) give_up("the gate");
      driver.start();
      driver.create();
    }));
  }
  ::close(go[1]);
  for (const auto& process : processes) EXPECT_EQ(process->end(), "exit 0");
  ::close(go[0]);
  EXPECT_EQ(card.ledger().header.owners, static_cast<unsigned>(kProcesses));
}

TEST(Ledger, OfProcessesThatComeAtOnceIsOne) {
  for (int round = 0; round < 10; ++round) come_at_once();
}

TEST(Ledger, KeepsTheNumbersOfWhoeverCameFirst) {
  const CardFolder card(std::uint64_t{64} << 20, 2);
  Process first([](const Driver& driver, const Partner&) { driver.start(); });
  EXPECT_EQ(first.end(), "exit 0");
  set_variable("KVDRILL_CARD_BYTES", "4194304");
  set_variable("KVDRILL_CARD_DEVICES", "1");
  Process second([](const Driver& driver, const Partner& test) {
    driver.start();
    int count = 0;
    std::size_t bytes = 0;
    must(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
    must(driver.cuDeviceTotalMem(&bytes, 1), "cuDeviceTotalMem");
    test.send(std::to_string(count) + " of " + std::to_string(bytes >> 20));
  });
  EXPECT_EQ(second.receive(), "2 of 64");
}

// Runs cuInit in a process and returns its answer and what it said on standard error.
std::string init_says(const CardFolder& card) {
  Process process([&](const Driver& driver, const Partner& test) {
    const int file = ::open(card.file("stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, STDERR_FILENO);
    test.send(code_of(driver.cuInit(0)));
  });
  const std::string code = process.receive();
  process.end();
  std::ifstream said(card.file("stderr"));
  std::string line;
  std::getline(said, line);
  return code + ": " + line;
}

TEST(Ledger, OfAnotherVersionIsRefused) {
  const CardFolder card;
  std::ofstream(card.file("ledger")) << "something else";
  EXPECT_THAT(init_says(card), HasSubstr("802: kvcard: cuInit: ledger: is 14 bytes, expected"));
}

// A file that was only made longer has no blocks yet: the first write to its mapping is a SIGBUS.
TEST(Ledger, OnAFullDiskSaysSo) {
  const CardFolder card;
  Process process([&](const Driver& driver, const Partner& test) {
    const int file = ::open(card.file("stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, STDERR_FILENO);
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("none", card.file("").c_str(), "tmpfs", 0, "size=64k") == 0;
    test.send(mounted ? code_of(driver.cuInit(0)) : "not mounted");
    // What is left is no ledger of another size.
    if (mounted) test.send(std::to_string(std::filesystem::file_size(card.file("ledger"))));
  });
  const std::string code = process.receive();
  if (code == "not mounted") GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(code, "802");
  EXPECT_EQ(process.receive(), "0");
  EXPECT_EQ(process.end(), "exit 0");
  std::ifstream said(card.file("stderr"));
  std::string line;
  std::getline(said, line);
  EXPECT_THAT(line, HasSubstr("kvcard: cuInit: ledger: no space on " +
                              card.file("").substr(0, card.file("").size() - 1)));
}

TEST(Ledger, WhoseMakerWasKilledHalfWayIsMadeByTheNext) {
  unsigned place = 1;
  for (bool killed = true; killed; ++place) {
    const CardFolder card;
    Process maker([place](const Driver& driver, const Partner&) {
      driver.kvcardTearAfter(place);
      driver.start();
    });
    killed = maker.end() == "signal 9";
    Process next([](const Driver& driver, const Partner&) { driver.start(); });
    EXPECT_EQ(next.end(), "exit 0") << place;
    EXPECT_EQ(std::memcmp(card.ledger().header.magic, kLedgerMagic, sizeof kLedgerMagic), 0);
  }
  EXPECT_GT(place, 4u);
}

TEST(Config, ANumberThatIsNoneIsRefusedByName) {
  const CardFolder card;
  set_variable("KVDRILL_CARD_BYTES", "2MiB");
  EXPECT_THAT(init_says(card),
              HasSubstr("802: kvcard: cuInit: KVDRILL_CARD_BYTES=2MiB: expected a whole number"));
}

TEST(Config, NoDevicesMeansThatThereIsNoDevice) {
  const CardFolder card(kPageSize, 0);
  EXPECT_THAT(init_says(card), HasSubstr("100: "));
}

TEST(Config, WithoutAFolderTheCardIsTheProcessesOwnAndLeavesNothing) {
  unset_variable("KVDRILL_CARD");
  unset_variable("KVDRILL_CARD_DEVICES");
  set_variable("KVDRILL_CARD_BYTES", std::to_string(4 * kPageSize));
  const auto body = [](const Driver& driver, const Partner& test) {
    driver.start();
    driver.create(4 * kPageSize);
    test.send("full");
    test.receive();
  };
  const Process first(body), second(body);  // each fills a card
  EXPECT_EQ(first.receive(), "full");
  EXPECT_EQ(second.receive(), "full");
}

}  // namespace
}  // namespace kv::card
