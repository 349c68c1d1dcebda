// What a batch leaves behind when driver calls fail: every call of every kind of batch fails once,
// alone and together with every later one, against the model of device memory. Loops end when a
// run had no call left to fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "fakes/doubles/test_hooks.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

constexpr std::int64_t kPage = ModelVmm::kPage;
constexpr int kLayers = 2, kBuffers = 2, kPagesPerBuffer = 8;
constexpr std::size_t kTensorBytes = kBuffers * kPagesPerBuffer * ModelVmm::kPage;

// Two layers with K and V, offsets 0 and 2 mapped and stamped: what a batch finds.
struct World {
  ModelVmm vmm;
  std::vector<std::string> log;
  std::unique_ptr<KvAllocator> allocator =
      make_kv_allocator(vmm, [this](Severity severity, std::string_view line) {
        if (severity == Severity::kError) log.emplace_back(line);
      });
  ModelVmm::Mappings before;

  World() {
    EXPECT_TRUE(
        allocator->create_tensors(0, {kLayers, kBuffers, kTensorBytes, ModelVmm::kPage}).ok());
    EXPECT_TRUE(allocator->map(0, {0, 2 * kPage}).ok());
    before = vmm.mappings();
    for (const auto& [address, mapping] : before) {
      EXPECT_TRUE(vmm.fill(address, stamp(mapping.handle), mapping.size).ok());
    }
    vmm.start_counting();
  }
  static std::uint8_t stamp(MemHandle handle) { return static_cast<std::uint8_t>(handle); }

  void fail_calls(const std::set<int>& numbers) {
    vmm.fault = [numbers](const std::string&, int number) {
      return numbers.contains(number) ? 2 : 0;
    };
  }
  int calls() const { return static_cast<int>(vmm.calls().size()); }

  // Holds at any moment: nothing is lost, nothing is counted twice, no rule was broken.
  void check_conservation() {
    const KvCounts counts = allocator->counts();
    EXPECT_EQ(counts.mapped_pages + counts.quarantined_pages, vmm.handles());
    EXPECT_EQ(vmm.used_bytes(), vmm.handles() * ModelVmm::kPage);
    EXPECT_EQ(counts.reserved_bytes, vmm.reserved_bytes());
    EXPECT_EQ(counts.degraded, counts.quarantined_pages > 0);
    EXPECT_EQ(counts.degraded, !log.empty());
    EXPECT_THAT(vmm.broken(), IsEmpty());
  }
  // The pages of the offsets that the world began with, except `but`: as they were, byte for byte.
  void check_untouched(const std::set<std::int64_t>& but = {}) {
    const ModelVmm::Mappings now = vmm.mappings();
    for (const auto& [address, mapping] : before) {
      if (but.contains(offset_of(address))) continue;
      ASSERT_TRUE(now.contains(address)) << std::hex << address;
      EXPECT_EQ(now.at(address), mapping);
      std::uint8_t byte = 0;
      EXPECT_TRUE(vmm.copy_from_device(&byte, address + 100, 1).ok());
      EXPECT_EQ(byte, stamp(mapping.handle));
    }
  }
  std::int64_t offset_of(DeviceAddress address) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const DeviceAddress base = *allocator->tensor(0, layer);
      if (address >= base && address < base + kTensorBytes) {
        return static_cast<std::int64_t>((address - base) % (kTensorBytes / kBuffers));
      }
    }
    return -1;
  }
  // Which of these offsets are set aside.
  std::set<std::int64_t> quarantined(const std::vector<std::int64_t>& offsets) {
    std::set<std::int64_t> found;
    for (const std::int64_t offset : offsets) {
      // Mapping what is mapped or set aside changes nothing; what is free is not asked about.
      vmm.fault = [](const std::string&, int) { return 2; };
      if (allocator->map(0, {offset}).status().code() == Code::kQuarantined) found.insert(offset);
    }
    vmm.fault = {};
    return found;
  }
  void check_all_comes_back() {
    vmm.fault = {};
    const Status status = allocator->release_all();
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(vmm.used_bytes(), 0u);
    EXPECT_EQ(vmm.handles(), 0u);
    EXPECT_EQ(vmm.reserved_bytes(), 0u);
    EXPECT_THAT(vmm.mappings(), IsEmpty());
    EXPECT_THAT(vmm.broken(), IsEmpty());
  }
};

bool calls_of_a_map(const std::vector<std::string>& calls) {
  return calls[0] == "create";
}

// Runs `batch`, which maps or unmaps all that is mapped, in fresh worlds: with call i failing, for
// each i; `check` judges. Then with i and each later j; then with i and all later ones. Those are
// judged by what always holds.
struct Outcome {
  Status status;
  int first_failed = 0;
  std::string call;  // its name
};
void exhaust(const std::function<Status(World&)>& batch, const std::vector<std::int64_t>& offsets,
             const std::function<void(World&, const Outcome&)>& check) {
  const auto run = [&](const std::set<int>& numbers, bool alone) {
    World world;
    world.fail_calls(numbers);
    const Status status = batch(world);
    const std::vector<std::string> calls = world.vmm.calls();
    if (*numbers.rbegin() >= static_cast<int>(calls.size()) && numbers.size() < 3) return false;
    SCOPED_TRACE("failing " + ::testing::PrintToString(numbers) + " of " +
                 ::testing::PrintToString(calls));
    world.vmm.fault = {};
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code() == Code::kQuarantined, world.allocator->counts().degraded);
    world.check_conservation();
    const std::set<std::int64_t> aside = world.quarantined(offsets);
    EXPECT_EQ(!aside.empty(), world.allocator->counts().degraded);
    if (std::count(calls.begin(), calls.end(), "release") > 0 && !calls_of_a_map(calls)) {
      // All pages were off by then; what is not set aside is off for good.
      EXPECT_THAT(world.vmm.mappings(), IsEmpty());
    } else {
      world.check_untouched(aside);
    }
    if (alone)
      check(world, {status, *numbers.begin(), calls[static_cast<std::size_t>(*numbers.begin())]});
    for (const std::int64_t offset : aside) {
      EXPECT_EQ(world.allocator->unmap(0, {offset}).code(), Code::kQuarantined);
    }
    world.check_conservation();
    world.check_all_comes_back();
    return !::testing::Test::HasFailure();
  };
  int i = 0;
  for (; run({i}, true); ++i) {
    for (int j = i + 1; run({i, j}, false); ++j) {
    }
    std::set<int> all;
    for (int n = i; n < i + 100; ++n) all.insert(n);
    run(all, false);
  }
  EXPECT_GE(i, 17) << "the batch made too few calls to be one";
}

TEST(KvAllocatorUndo, AFailedMapLeavesExactlyWhatWasThere) {
  const std::vector<std::int64_t> offsets = {5 * kPage, 0, kPage};
  exhaust([&](World& world) { return world.allocator->map(0, offsets).status(); }, offsets,
          [&](World& world, const Outcome& outcome) {
            EXPECT_EQ(outcome.status.code(), Code::kOutOfMemory);
            EXPECT_EQ(world.vmm.mappings(), world.before);
            EXPECT_EQ(world.allocator->counts().mapped_pages, world.before.size());
            EXPECT_THAT(*world.allocator->map(0, offsets), SizeIs(2));
          });
}

TEST(KvAllocatorUndo, AFailedUnmapLeavesAllMappedOrAllUnmapped) {
  const std::vector<std::int64_t> offsets = {2 * kPage, 0};
  exhaust([&](World& world) { return world.allocator->unmap(0, offsets); }, offsets,
          [&](World& world, const Outcome& outcome) {
            if (outcome.call == "release") {
              // Off, but the memory of one page stays: its offset is set aside, the other one is
              // free.
              EXPECT_EQ(outcome.status.code(), Code::kQuarantined);
              EXPECT_THAT(world.vmm.mappings(), IsEmpty());
              EXPECT_EQ(world.allocator->counts().quarantined_pages, 1u);
            } else {
              EXPECT_EQ(outcome.status.code(), Code::kOutOfMemory);
              EXPECT_EQ(world.vmm.mappings(), world.before);
              EXPECT_TRUE(world.allocator->unmap(0, offsets).ok());
            }
          });
}

TEST(KvAllocatorUndo, AFailedCommitMayBeCommittedAgainOrAborted) {
  const std::vector<std::int64_t> offsets = {0, 2 * kPage};
  exhaust(
      [&](World& world) {
        EXPECT_TRUE(world.allocator->prepare_unmap(0, offsets, "t").ok());
        return world.allocator->commit_unmap(0, "t");
      },
      offsets,
      [&](World& world, const Outcome& outcome) {
        if (outcome.call == "release") {
          EXPECT_TRUE(world.allocator->commit_unmap(0, "t").ok());  // it ended
          EXPECT_EQ(world.allocator->abort_unmap(0, "t").code(), Code::kFailedPrecondition);
        } else if (outcome.first_failed % 2 == 0) {
          EXPECT_TRUE(world.allocator->commit_unmap(0, "t").ok());
          EXPECT_EQ(world.allocator->counts().mapped_pages, 0u);
        } else {
          EXPECT_TRUE(world.allocator->abort_unmap(0, "t").ok());
          EXPECT_EQ(world.vmm.mappings(), world.before);
          EXPECT_TRUE(world.allocator->unmap(0, offsets).ok());
        }
      });
}

TEST(KvAllocatorUndo, ACommitThatSetsAnOffsetAsideCanOnlyBeAborted) {
  World world;
  ASSERT_TRUE(world.allocator->prepare_unmap(0, {0, 2 * kPage}, "t").ok());
  world.fail_calls({3, 4});  // the wait, two pages off, the third fails, and so does its undo
  EXPECT_EQ(world.allocator->commit_unmap(0, "t").code(), Code::kQuarantined);
  world.vmm.fault = {};
  EXPECT_EQ(world.allocator->commit_unmap(0, "t").code(), Code::kQuarantined);
  EXPECT_EQ(world.allocator->counts().pending_unmaps, 1u);
  EXPECT_TRUE(world.allocator->abort_unmap(0, "t").ok());
  EXPECT_EQ(world.quarantined({0, 2 * kPage}), std::set<std::int64_t>{0});
  EXPECT_TRUE(world.allocator->unmap(0, {2 * kPage}).ok());
  world.check_conservation();
  world.check_all_comes_back();
}

TEST(KvAllocatorUndo, AFailedCreationLeavesNoRange) {
  const KvShape shape{5, kBuffers, kTensorBytes, ModelVmm::kPage};
  for (int i = 0; i < 5; ++i) {
    World world;
    world.fail_calls({i});
    EXPECT_EQ(world.allocator->create_tensors(1, shape).code(), Code::kOutOfMemory);
    EXPECT_FALSE(world.allocator->tensors_created(1));
    world.check_conservation();
    EXPECT_TRUE(world.allocator->create_tensors(1, shape).ok());
    world.check_all_comes_back();
  }
}

TEST(KvAllocatorUndo, RangesOfAFailedCreationThatCannotBeFreedAreKeptForReleaseAll) {
  const KvShape shape{5, kBuffers, kTensorBytes, ModelVmm::kPage};
  for (int j = 4; j < 7; ++j) {
    World world;
    world.fail_calls({3, j});
    const Status status = world.allocator->create_tensors(1, shape);
    EXPECT_EQ(status.code(), Code::kQuarantined);
    EXPECT_THAT(status.to_string(), HasSubstr("left for release_all"));
    EXPECT_TRUE(world.allocator->counts().degraded);
    EXPECT_EQ(world.allocator->counts().reserved_bytes, world.vmm.reserved_bytes());
    EXPECT_FALSE(world.allocator->tensors_created(1));
    EXPECT_EQ(world.allocator->create_tensors(1, shape).code(), Code::kFailedPrecondition);
    EXPECT_EQ(world.allocator->map(1, {0}).status().code(), Code::kFailedPrecondition);
    EXPECT_EQ(world.allocator->tensor(1, 0).status().code(), Code::kFailedPrecondition);
    world.check_untouched();
    world.check_all_comes_back();
  }
}

TEST(KvAllocatorUndo, ReleaseAllTriesEverythingAndTheNextCallHasTheRest) {
  const auto run = [](const std::set<int>& numbers) {
    World world;
    EXPECT_TRUE(world.allocator->create_tensors(1, {1, 1, kTensorBytes, ModelVmm::kPage}).ok());
    EXPECT_TRUE(world.allocator->map(1, {kPage}).ok());
    world.vmm.start_counting();
    world.fail_calls(numbers);
    const Status status = world.allocator->release_all();
    const std::vector<std::string> calls = world.vmm.calls();
    if (*numbers.rbegin() >= static_cast<int>(calls.size())) return false;
    SCOPED_TRACE("failing " + ::testing::PrintToString(numbers) + " of " +
                 ::testing::PrintToString(calls));
    // Work that cannot be waited for does not keep the memory.
    const bool only_the_wait = numbers == std::set<int>{0};
    EXPECT_EQ(status.ok(), only_the_wait);
    const KvCounts counts = world.allocator->counts();
    EXPECT_EQ(counts.mapped_pages + counts.quarantined_pages, world.vmm.handles());
    EXPECT_EQ(counts.reserved_bytes, world.vmm.reserved_bytes());
    EXPECT_EQ(counts.degraded, !only_the_wait);
    // A single failure keeps one page or one range, and with a page the ranges that hold it.
    if (numbers.size() == 1 && calls[static_cast<std::size_t>(*numbers.begin())] != "synchronize") {
      EXPECT_LE(world.vmm.handles(), 1u);
      EXPECT_LE(world.vmm.reserved_bytes(), kTensorBytes);
    }
    world.check_all_comes_back();
    return !::testing::Test::HasFailure();
  };
  int i = 0;
  for (; run({i}); ++i) {
    for (int j = i + 1; run({i, j}); ++j) {
    }
  }
  EXPECT_GT(i, 20);
}

TEST(KvAllocatorUndo, AGroupThatIsHalfReleasedTakesNoMoreBatches) {
  World world;
  world.vmm.fault = [](const std::string& call, int) { return call == "free_address" ? 1 : 0; };
  EXPECT_FALSE(world.allocator->release_all().ok());
  EXPECT_EQ(world.allocator->map(0, {0}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(world.allocator->unmap(0, {0}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(world.allocator->commit_unmap(0, "t").code(), Code::kFailedPrecondition);
  EXPECT_FALSE(world.allocator->tensors_created(0));
  world.check_all_comes_back();
}

TEST(KvAllocatorUndo, WhatIsSetAsideIsSaidInStatusAndLog) {
  World world;
  // Creates 4 pages (0 to 3), maps one (4, 5); the next map fails, and so does undoing the first.
  world.fail_calls({6, 7});
  const Status status = world.allocator->map(0, {kPage}).status();
  EXPECT_EQ(status.code(), Code::kQuarantined);
  EXPECT_EQ(status.native(), 2);
  EXPECT_THAT(status.to_string(), HasSubstr("group 0, offsets 4096"));
  EXPECT_THAT(world.log, IsSupersetOf({status.to_string()}));
  EXPECT_THAT(
      world.log[0],
      HasSubstr("undo failed: allocator.map.undo: group 0, offset 4096, layer 0, buffer 0"));
  EXPECT_EQ(world.allocator->counts().quarantined_pages, 1u);
  EXPECT_EQ(world.vmm.handles(), world.before.size() + 1);
}

// Any batch, any failures, for long: the books stay right, what was not touched stays as it is.
TEST(KvAllocatorUndo, RandomBatchesWithRandomFailuresKeepTheBooksRight) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    World world;
    std::set<std::int64_t> mapped = {0, 2 * kPage}, unknown;
    for (int round = 0; round < 40 && !::testing::Test::HasFailure(); ++round) {
      std::vector<std::int64_t> offsets;
      const bool map = random() % 2 == 0;
      for (std::int64_t offset = 0; offset < kPagesPerBuffer * kPage; offset += kPage) {
        if (!unknown.contains(offset) && mapped.contains(offset) != map && random() % 2 == 0) {
          offsets.push_back(offset);
        }
      }
      const unsigned rate = random() % 4 == 0 ? 6 : 40;
      world.vmm.fault = [&](const std::string&, int) { return random() % rate == 0 ? 999 : 0; };
      const Status status =
          map ? world.allocator->map(0, offsets).status() : world.allocator->unmap(0, offsets);
      world.vmm.fault = {};
      for (const std::int64_t offset : offsets) {
        if (status.code() == Code::kQuarantined) {
          mapped.erase(offset);
          unknown.insert(offset);
        } else if (status.ok()) {
          map ? mapped.insert(offset), 0 : mapped.erase(offset);
        }
      }
      world.check_conservation();
      std::set<std::int64_t> whole;
      for (const auto& [address, mapping] : world.vmm.mappings()) {
        const std::int64_t offset = world.offset_of(address);
        if (unknown.contains(offset)) continue;
        EXPECT_EQ(mapping.access, Access::kReadWrite);
        whole.insert(offset);
      }
      EXPECT_EQ(whole, mapped);
    }
    world.check_all_comes_back();
  }
}

// ---- the protections, left out: what a drill sees

TEST(KvAllocatorSteps, WithoutTheUndoOfAMapItsPagesStayOnTheCard) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  TestHooks hooks;
  hooks.skip("allocator.map.undo");
  World world;
  world.fail_calls({7});
  EXPECT_FALSE(world.allocator->map(0, {kPage}).ok());
  EXPECT_EQ(hooks.count("allocator.map.undo"), 1u);
  EXPECT_EQ(hooks.count("allocator.map.undo.done"), 0u);
  EXPECT_EQ(world.vmm.handles(), world.before.size() + 4);
  EXPECT_FALSE(world.allocator->release_all().ok());
  EXPECT_EQ(world.vmm.handles(), 4u);
  EXPECT_EQ(world.vmm.reserved_bytes(), kTensorBytes);
}

TEST(KvAllocatorSteps, WithoutTheUndoOfAnUnmapItsPagesAreGoneFromTheirAddresses) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  TestHooks hooks;
  hooks.skip("allocator.unmap.undo");
  World world;
  world.fail_calls({2});  // after the wait and one page
  EXPECT_FALSE(world.allocator->unmap(0, {0}).ok());
  EXPECT_EQ(hooks.count("allocator.unmap.undo"), 1u);
  EXPECT_EQ(world.vmm.mappings().size(), world.before.size() - 1);
  EXPECT_EQ(world.vmm.handles(), world.before.size());
}

}  // namespace
}  // namespace kv
