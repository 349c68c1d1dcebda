// The card in a drill: its calls are moments that can be seen, failed, held and crashed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fakes/card/calls.h"
#include "fakes/card/testing.h"
#include "harness/board/board.h"
#include "harness/board/kvdrill.h"
#include "harness/board/testing.h"

namespace kv::card {
namespace {

using drill::Action;
using drill::EventKind;

constexpr kvdrill_command kNoCommands[] = {{nullptr, nullptr, nullptr}};
constexpr const char* kRoles[] = {"worker", nullptr};

// In a child of a drill: attached, with the card loaded.
const Driver& attach() {
  static kvdrill_engine engine = {
      KVDRILL_CONTRACT_VERSION, "points_test", kRoles, kNoCommands, nullptr, nullptr, 0};
  kvdrill_attach(&engine);
  return load_driver(kLibrary);
}

TEST(Points, OfACallAreItsBeginWithTheKeyAndItsEndWithTheResult) {
  const CardFolder card;
  drill::Drill drill;
  const pid_t pid = drill.fork_child("worker", [] {
    const Driver& driver = attach();
    driver.start();
    const CUdeviceptr base = driver.reserve(4);
    driver.cuMemUnmap(base + 4096, kPageSize);
  });
  EXPECT_EQ(drill.exit_code(pid), 0);
  const auto begins = drill.all(EventKind::kPoint, "driver.cuMemUnmap");
  const auto ends = drill.all(EventKind::kDone, "driver.cuMemUnmap");
  ASSERT_EQ(begins.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(begins[0].key % static_cast<std::int64_t>(kPageSize), 4096);
  EXPECT_EQ(ends[0].key, begins[0].key);
  EXPECT_EQ(ends[0].value, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(drill.all(EventKind::kDone, "driver.cuInit").size(), 1u);
}

TEST(Points, AnInjectedCodeIsAnsweredAndTheCallIsNotMade) {
  const CardFolder card;
  drill::Drill drill;
  drill.board.give({.action = Action::kFail, .site = "driver.cuMemCreate", .code = 2});
  const pid_t pid = drill.fork_child("worker", [] {
    const Driver& driver = attach();
    driver.start();
    const std::int64_t before = driver.free_bytes();
    const CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    const CUresult failed = driver.cuMemCreate(&handle, kPageSize, &prop, 0);
    if (failed != CUDA_ERROR_OUT_OF_MEMORY || handle != 0) give_up("not injected");
    if (driver.free_bytes() != before) give_up("the call was made");
    must(driver.cuMemCreate(&handle, kPageSize, &prop, 0), "the second cuMemCreate");
  });
  EXPECT_EQ(drill.exit_code(pid), 0);
  EXPECT_EQ(drill.all(EventKind::kDone, "driver.cuMemCreate")[0].value, CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(Points, AProcessHeldInACallBlocksNobodyAndGivesBackWhenKilled) {
  const CardFolder card(8 * kPageSize);
  drill::Drill drill;
  drill.board.give({.action = Action::kHold, .site = "driver.cuMemUnmap"});
  const pid_t held = drill.fork_child("held", [] {
    const Driver& driver = attach();
    driver.start();
    const CUdeviceptr base = driver.reserve(4);
    driver.page_at(base);
    driver.cuMemUnmap(base, kPageSize);
  });
  drill.wait_for(EventKind::kActed);
  const auto count_free = [&drill](const std::string& name) {
    const pid_t pid = drill.fork_child(name, [] {
      const Driver& driver = attach();
      driver.start();
      ::_exit(static_cast<int>(driver.free_bytes() / static_cast<std::int64_t>(kPageSize)));
    });
    return drill.exit_code(pid);
  };
  EXPECT_EQ(count_free("first"), 7);
  ASSERT_EQ(::kill(held, SIGKILL), 0);
  drill.reap(held);
  EXPECT_EQ(count_free("second"), 8);
}

TEST(Points, AreKnownForEveryExportedCall) {
  std::set<std::string> names;
  const std::string command = "nm -D --defined-only " + kLibrary;
  FILE* output = ::popen(command.c_str(), "r");
  char line[512] = {};
  while (std::fgets(line, sizeof line, output) != nullptr) {
    std::string text = line;
    text = text.substr(text.rfind(' ') + 1);
    text.pop_back();
    if (text.starts_with("cu")) names.insert(text.substr(0, text.find("_v2")));
  }
  ASSERT_EQ(::pclose(output), 0);
  std::set<std::string> known;
#define KVCARD_NAME_(name) known.insert(#name);
  KVCARD_CALLS(KVCARD_NAME_)
#undef KVCARD_NAME_
  EXPECT_EQ(names, known);
}

}  // namespace
}  // namespace kv::card
