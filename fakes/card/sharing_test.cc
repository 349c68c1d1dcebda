// Several processes on one card: budgets, deaths, and what a death leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "fakes/card/testing.h"

namespace kv::card {
namespace {

constexpr int kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

std::string free_pages(const Driver& driver) {
  return std::to_string(driver.free_bytes() / static_cast<std::int64_t>(kPageSize));
}

// A process that answers: "free" with the free pages, "create" with the code of creating a page.
void obey(const Driver& driver, const Partner& test) {
  driver.start();
  const CUmemAllocationProp prop = properties();
  for (;;) {
    const std::string order = test.receive();
    CUmemGenericAllocationHandle handle = 0;
    if (order == "free") test.send(free_pages(driver));
    if (order == "create") test.send(code_of(driver.cuMemCreate(&handle, kPageSize, &prop, 0)));
  }
}

TEST(Budget, IsOneForAllProcesses) {
  const CardFolder card(8 * kPageSize);
  const Process one(obey), two(obey);
  EXPECT_EQ(one.ask("free"), "8");
  for (int page = 0; page < 4; ++page) {
    EXPECT_EQ(one.ask("create"), "0");
    EXPECT_EQ(two.ask("create"), "0");
  }
  EXPECT_EQ(one.ask("free"), "0");
  EXPECT_EQ(one.ask("create"), "2");
  EXPECT_EQ(two.ask("create"), "2");
}

TEST(Budget, IsNeverExceededByProcessesThatCreateAtOnce) {
  const CardFolder card(64 * kPageSize);
  const auto grab = [](const Driver& driver, const Partner& test) {
    driver.start();
    test.receive();
    const CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    int got = 0;
    while (driver.cuMemCreate(&handle, kPageSize, &prop, 0) == CUDA_SUCCESS) ++got;
    test.send(std::to_string(got));
    test.receive();
  };
  const Process one(grab), two(grab), three(grab);
  for (const Process* process : {&one, &two, &three}) process->partner().send("go");
  EXPECT_EQ(std::stoi(one.receive()) + std::stoi(two.receive()) + std::stoi(three.receive()), 64);
}

TEST(Death, BySigkillGivesMemoryBackAtTheNextAccountingOfAnybody) {
  const CardFolder card(8 * kPageSize);
  const Process other(obey);
  Process process(obey);
  for (int page = 0; page < 8; ++page) ASSERT_EQ(process.ask("create"), "0");
  EXPECT_EQ(other.ask("create"), "2");
  process.kill();
  EXPECT_EQ(other.ask("create"), "0");
  EXPECT_EQ(other.ask("free"), "7");
  // What it left is still told.
  EXPECT_EQ(card.ledger().owners[1].bytes + card.ledger().owners[0].bytes, 9 * kPageSize);
}

TEST(Death, GivesTheBytesOnDiskBackToo) {
  const CardFolder card(64 * kPageSize);
  const auto blocks = [&] {
    struct stat info = {};
    EXPECT_EQ(::stat(card.file("memory").c_str(), &info), 0);
    return info.st_blocks;
  };
  const Process other(obey);
  Process process([](const Driver& driver, const Partner& test) {
    driver.start();
    const CUdeviceptr base = driver.reserve(8);
    for (int page = 0; page < 8; ++page) driver.page_at(base + page * kPageSize);
    must(driver.cuMemsetD8(base, 'x', 8 * kPageSize), "cuMemsetD8");
    test.send("written");
    test.receive();
  });
  EXPECT_EQ(process.receive(), "written");
  EXPECT_GE(blocks() * 512, static_cast<std::int64_t>(8 * kPageSize));
  process.kill();
  EXPECT_EQ(other.ask("free"), "64");
  EXPECT_EQ(blocks(), 0);
}

TEST(Death, MemoryThatIsUsedAgainReadsAsZero) {
  const CardFolder card(2 * kPageSize);
  const auto body = [](const Driver& driver, const Partner& test) {
    driver.start();
    const CUdeviceptr base = driver.reserve(2);
    driver.map(base, driver.create(2 * kPageSize), 2 * kPageSize);
    must(driver.access(base, 2 * kPageSize), "cuMemSetAccess");
    char byte = 'y';
    must(driver.cuMemcpyDtoH(&byte, base + kPageSize, 1), "cuMemcpyDtoH");
    must(driver.cuMemsetD8(base, 'x', 2 * kPageSize), "cuMemsetD8");
    test.send(byte == 0 ? "zero" : "old");
    test.receive();
  };
  Process first(body);
  EXPECT_EQ(first.receive(), "zero");
  first.kill();
  const Process second(body);
  EXPECT_EQ(second.receive(), "zero");
}

// One of each change that the accounts know, so that every place where they can be torn is passed.
void all_changes(const Driver& driver) {
  const CUdeviceptr base = driver.reserve(4);
  const auto handle = driver.create(kPageSize, true);
  driver.map(base, handle);
  int fd = -1;
  must(driver.cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0), "export");
  CUmemGenericAllocationHandle imported = 0;
  must(driver.cuMemImportFromShareableHandle(
           &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)), kDescriptor),
       "import");
  must(driver.cuMemRelease(imported), "cuMemRelease");
  must(driver.cuMemRelease(handle), "cuMemRelease");
  must(driver.cuMemUnmap(base, kPageSize), "cuMemUnmap");
  ::close(fd);
  driver.free_bytes();
  must(driver.cuMemRelease(driver.create(2 * kPageSize)), "cuMemRelease");
  driver.create();
}

// Dies at the `place`-th place from its start on where the accounts can be torn. False: there are
// fewer.
bool torn_at(unsigned place) {
  Process process([place](const Driver& driver, const Partner&) {
    driver.kvcardTearAfter(place);
    driver.start();
    all_changes(driver);
  });
  const std::string end = process.end();
  EXPECT_TRUE(end == "signal 9" || end == "exit 0") << end;
  return end == "signal 9";
}

TEST(Death, InTheMiddleOfAnyChangeOfTheAccountsIsRepaired) {
  const CardFolder card(16 * kPageSize);
  const Process other(obey);
  ASSERT_EQ(other.ask("create"), "0");
  unsigned place = 1;
  while (torn_at(place)) {
    ASSERT_EQ(other.ask("free"), "15") << "torn at place " << place;
    ++place;
  }
  EXPECT_GT(place, 20u);
  for (int page = 1; page < 16; ++page) ASSERT_EQ(other.ask("create"), "0");
  EXPECT_EQ(other.ask("create"), "2");
}

TEST(Death, InTheMiddleOfARepairIsRepairedByTheNext) {
  const CardFolder card(16 * kPageSize);
  const Process other(obey);
  ASSERT_EQ(other.ask("create"), "0");
  // The second of each pair finds what the first left, and dies on it itself.
  for (unsigned first = 1; first < 12; ++first) {
    for (unsigned second = 1; second < 4; ++second) {
      torn_at(first);
      torn_at(second);
      ASSERT_EQ(other.ask("free"), "15") << first << ", " << second;
    }
  }
}

TEST(Fork, AChildWithoutExecDoesNotKeepItsParentAlive) {
  const CardFolder card(8 * kPageSize);
  const Process other(obey);
  int child_lives[2] = {-1, -1};
  ASSERT_EQ(::pipe2(child_lives, O_CLOEXEC), 0);
  Process parent([&](const Driver& driver, const Partner& test) {
    driver.start();
    driver.create(8 * kPageSize);
    if (::fork() == 0) {
      const auto code = driver.cuInit(0);
      test.send("child " + code_of(code));
      char byte = 0;
      ::close(child_lives[1]);
      [[maybe_unused]] const ssize_t got = ::read(child_lives[0], &byte, 1);
      ::_exit(0);
    }
    test.receive();
  });
  EXPECT_EQ(parent.receive(), "child 3");
  EXPECT_EQ(other.ask("free"), "0");
  parent.kill();
  EXPECT_EQ(other.ask("free"), "8");  // the child still lives
  ::close(child_lives[1]);
  ::close(child_lives[0]);
}

TEST(Fork, AChildOfAProcessThatNeverHadTheCardUpMayHaveIt) {
  const CardFolder card;
  Process parent([](const Driver& driver, const Partner& test) {
    const pid_t child = ::fork();
    if (child == 0) {
      test.send(code_of(driver.cuInit(0)));
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
  });
  EXPECT_EQ(parent.receive(), "0");
}

TEST(Descriptor, KeepsBytesInAProcessThatNeverUsedTheCard) {
  const CardFolder card(8 * kPageSize);
  const Process other(obey);
  Process producer([](const Driver& driver, const Partner& test) {
    driver.start();
    int fd = -1;
    must(driver.cuMemExportToShareableHandle(&fd, driver.create(kPageSize, true), kDescriptor, 0),
         "export");
    test.send("here", fd);
    test.receive();
  });
  int fd = -1;
  producer.partner().receive(&fd);
  producer.kill();
  EXPECT_EQ(other.ask("free"), "7");
  ::close(fd);
  EXPECT_EQ(other.ask("free"), "8");
}

TEST(Descriptor, OpenedAnewFromOutsideIsNotTheOneThatWasGivenOut) {
  const CardFolder card(8 * kPageSize);
  Process process([&](const Driver& driver, const Partner& test) {
    driver.start();
    int fd = -1;
    must(driver.cuMemExportToShareableHandle(&fd, driver.create(kPageSize, true), kDescriptor, 0),
         "export");
    const int imitation = ::open(card.file("exports").c_str(), O_RDWR | O_CLOEXEC);
    CUmemGenericAllocationHandle handle = 0;
    test.send(code_of(driver.cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(imitation)), kDescriptor)));
  });
  EXPECT_EQ(process.receive(), "1");
}

TEST(Ipc, HandleOfMemoryThatIsGoneIsRefused) {
  const CardFolder card(8 * kPageSize);
  Process producer([](const Driver& driver, const Partner& test) {
    driver.start();
    CUdeviceptr address = 0;
    must(driver.cuMemAlloc(&address, kPageSize), "cuMemAlloc");
    CUipcMemHandle handle = {};
    must(driver.cuIpcGetMemHandle(&handle, address), "cuIpcGetMemHandle");
    must(driver.cuMemFree(address), "cuMemFree");
    must(driver.cuMemAlloc(&address, kPageSize), "cuMemAlloc");  // the same bytes, another life
    test.send(std::string(handle.reserved, sizeof handle.reserved));
    test.receive();
  });
  const std::string sent = producer.receive();
  Process reader([&](const Driver& driver, const Partner& test) {
    driver.start();
    CUipcMemHandle handle = {};
    std::memcpy(handle.reserved, sent.data(), sent.size());
    CUdeviceptr address = 0;
    test.send(code_of(driver.cuIpcOpenMemHandle(&address, handle, 1)));
  });
  EXPECT_EQ(reader.receive(), "1");
}

TEST(HostAccess, OfADeviceAddressDies) {
  const CardFolder card;
  enum class Where { kReserved, kMapped, kPlain, kBehindTheEnd };
  for (const Where where :
       {Where::kReserved, Where::kMapped, Where::kPlain, Where::kBehindTheEnd}) {
    Process process([where](const Driver& driver, const Partner&) {
      ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would make a report of it
      driver.start();
      CUdeviceptr address = driver.reserve(4);
      if (where == Where::kMapped) driver.page_at(address);
      if (where == Where::kPlain) must(driver.cuMemAlloc(&address, kPageSize), "cuMemAlloc");
      if (where == Where::kBehindTheEnd) address += 4 * kPageSize;
      *reinterpret_cast<volatile char*>(address) = 1;
    });
    EXPECT_EQ(process.end(), "signal 11") << static_cast<int>(where);
  }
}

}  // namespace
}  // namespace kv::card
