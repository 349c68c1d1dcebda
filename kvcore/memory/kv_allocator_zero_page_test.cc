// Tensors whose unmapped addresses read zeros: an address has its page or the zero page, before and
// after every batch, also when any driver call of it fails, and the undo with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kPage = ModelVmm::kPage;
constexpr int kLayers = 2, kBuffers = 2, kPages = 4;
constexpr int kPieces = kLayers * kBuffers * kPages;
constexpr std::size_t kTensorBytes = std::size_t{kBuffers} * kPages * ModelVmm::kPage;
constexpr std::uint8_t kStamp = 0x5a;

KvShape shape() {
  KvShape shape{kLayers, kBuffers, kTensorBytes, ModelVmm::kPage};
  shape.zero_page = true;
  return shape;
}

// Offsets 0 and 2 are mapped and stamped.
struct World {
  ModelVmm vmm;
  std::unique_ptr<KvAllocator> allocator = make_kv_allocator(vmm, {});
  ModelVmm::Mappings before;

  explicit World(bool made = true) {
    if (!made) return;
    EXPECT_TRUE(allocator->create_tensors(0, shape()).ok());
    EXPECT_TRUE(allocator->map(0, {0, 2 * kPage}).ok());
    for (const std::int64_t offset : {std::int64_t{0}, 2 * kPage}) {
      for (const DeviceAddress address : pieces(offset)) {
        EXPECT_TRUE(vmm.fill(address, kStamp, kPage).ok());
      }
    }
    before = vmm.mappings();
    vmm.start_counting();
  }
  std::vector<DeviceAddress> pieces(std::int64_t offset) {
    std::vector<DeviceAddress> addresses;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int buffer = 0; buffer < kBuffers; ++buffer) {
        addresses.push_back(*allocator->address(0, layer, buffer, offset));
      }
    }
    return addresses;
  }
  // The first byte at each piece of the offset; -1: it cannot be read.
  std::vector<int> bytes(std::int64_t offset) {
    std::vector<int> found;
    for (const DeviceAddress address : pieces(offset)) {
      std::uint8_t byte = 0;
      found.push_back(vmm.copy_from_device(&byte, address, 1).ok() ? byte : -1);
    }
    return found;
  }
  // Pieces without anything that can be read.
  std::size_t unreadable() const {
    std::size_t bare = kPieces;
    for (const auto& [address, mapping] : vmm.mappings()) {
      bare -= mapping.access != Access::kNone ? 1 : 0;
    }
    return bare;
  }
  PageMap state(std::int64_t offset) { return allocator->page_states(0, {offset})->front(); }

  void fail_calls(const std::function<bool(int)>& which) {
    vmm.fault = [which](const std::string&, int number) { return which(number) ? 2 : 0; };
  }
  // Nothing is lost, and whatever is not set aside can be read.
  void check() {
    vmm.fault = {};
    EXPECT_THAT(vmm.broken(), IsEmpty());
    const KvCounts counts = allocator->counts();
    const std::size_t bare = unreadable();
    const std::size_t known = counts.mapped_pages + counts.quarantined_pages + 1;  // the zero page
    EXPECT_LE(vmm.handles(), known);
    EXPECT_LE(known, vmm.handles() + bare);
    EXPECT_LE(bare, counts.quarantined_pages);
    EXPECT_EQ(counts.degraded, counts.quarantined_pages > 0);
    for (std::int64_t offset = 0; offset < kPages * kPage; offset += kPage) {
      switch (state(offset)) {
        case PageMap::kUnmapped:
          EXPECT_THAT(bytes(offset), Each(0)) << offset;
          for (const DeviceAddress address : pieces(offset)) {
            EXPECT_FALSE(vmm.fill(address, 1, 1).ok()) << "the zero page can be written";
          }
          break;
        case PageMap::kMapped:
          EXPECT_THAT(bytes(offset), Each(stamped(offset) ? int{kStamp} : 0)) << offset;
          break;
        case PageMap::kQuarantined:
          break;
      }
    }
  }
  static bool stamped(std::int64_t offset) { return offset == 0 || offset == 2 * kPage; }
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

TEST(ZeroPage, AddressesWithoutAPageReadZerosFromOnePieceOfMemory) {
  World world;
  EXPECT_EQ(world.vmm.mappings().size(), static_cast<std::size_t>(kPieces));
  EXPECT_EQ(world.vmm.handles(), 2u * kLayers * kBuffers + 1);
  EXPECT_EQ(world.allocator->counts().mapped_pages, 2u * kLayers * kBuffers);
  EXPECT_THAT(world.bytes(kPage), Each(0));
  EXPECT_THAT(world.bytes(2 * kPage), Each(kStamp));
  ASSERT_TRUE(world.allocator->unmap(0, {2 * kPage}).ok());
  EXPECT_THAT(world.bytes(2 * kPage), Each(0));
  world.check();
  world.check_all_comes_back();
}

TEST(ZeroPage, TheMemoryBehindItIsFilledAndNotTrusted) {
  World world(false);
  world.vmm.start_counting();
  ASSERT_TRUE(world.allocator->create_tensors(0, shape()).ok());
  const auto calls = world.vmm.calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "fill"), 1);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "create"), 1);
  world.check_all_comes_back();
}

TEST(ZeroPage, EveryLayoutHasOneOfItsPiecesSize) {
  for (const KvLayout layout : {KvLayout::kContiguous, KvLayout::kUnified}) {
    World world(false);
    KvShape other = shape();
    other.layout = layout;
    ASSERT_TRUE(world.allocator->create_tensors(0, other).ok());
    EXPECT_EQ(world.vmm.handles(), 1u);
    EXPECT_EQ(world.vmm.used_bytes(), kPage * (layout == KvLayout::kContiguous ? 4u : 1u));
    const auto last = *world.allocator->address(0, kLayers - 1, 0, (kPages - 1) * kPage);
    std::uint8_t byte = 1;
    EXPECT_TRUE(world.vmm.copy_from_device(&byte, last, 1).ok());
    EXPECT_EQ(byte, 0);
    world.check_all_comes_back();
  }
}

TEST(ZeroPage, MappingWaitsForWorkThatMayReadIt) {
  World world;
  ASSERT_TRUE(world.allocator->map(0, {kPage}).ok());
  const auto calls = world.vmm.calls();
  EXPECT_EQ(calls.front(), "synchronize");
  // All memory is there before any address changes.
  EXPECT_THAT(std::vector<std::string>(calls.begin() + 1, calls.begin() + 5), Each("create"));
  EXPECT_THAT(std::vector<std::string>(calls.begin() + 5, calls.begin() + 8),
              ElementsAre("unmap", "map", "set_access"));
  world.vmm.start_counting();
  ASSERT_TRUE(world.allocator->map(0, {0, kPage}).ok());
  EXPECT_THAT(world.vmm.calls(), IsEmpty()) << "nothing to wait for";
}

TEST(ZeroPage, WhenTheWorkFailedNothingIsMapped) {
  World world;
  world.vmm.fault = [](const std::string& call, int) { return call == "synchronize" ? 700 : 0; };
  const Status status = world.allocator->map(0, {kPage}).status();
  EXPECT_EQ(status.code(), Code::kDriver);
  EXPECT_EQ(status.native(), 700);
  EXPECT_THAT(status.to_string(), HasSubstr("group 0"));
  EXPECT_EQ(world.vmm.mappings(), world.before);
  world.check();
  world.check_all_comes_back();
}

// ---- every call fails

using Batch = std::function<Status(KvAllocator&)>;
const std::vector<std::pair<std::string, Batch>>& batches() {
  static const std::vector<std::pair<std::string, Batch>> all{
      {"map",
       [](KvAllocator& kv) {
         return kv.map(0, {kPage, 0, 3 * kPage}).status();
       }},
      {"unmap",
       [](KvAllocator& kv) {
         return kv.unmap(0, {2 * kPage, 0});
       }},
      {"commit",
       [](KvAllocator& kv) {
         const Status status = kv.prepare_unmap(0, {0, 2 * kPage}, "t");
         return status.ok() ? kv.commit_unmap(0, "t") : status;
       }},
  };
  return all;
}

// Runs `batch` with the calls that `fails(k, number)` names failing, for every k that it reaches.
// Returns how many k there were.
int for_every_call(const Batch& batch, const std::function<bool(int, int)>& fails,
                   const std::function<void(World&, const Status&)>& check) {
  for (int k = 0;; ++k) {
    SCOPED_TRACE("call " + std::to_string(k));
    World world;
    world.fail_calls([&](int number) { return fails(k, number); });
    const Status status = batch(*world.allocator);
    const bool reached = static_cast<int>(world.vmm.calls().size()) > k;
    EXPECT_EQ(status.ok(), !reached);
    if (status.ok() || ::testing::Test::HasFailure()) return k;
    check(world, status);
    world.check();
    world.check_all_comes_back();
  }
}

TEST(ZeroPage, OneCallThatFailsChangesNothing) {
  for (const auto& [name, batch] : batches()) {
    SCOPED_TRACE(name);
    const int calls = for_every_call(
        batch, [](int k, int number) { return number == k; },
        [](World& world, const Status& status) {
          if (status.code() == Code::kQuarantined) return;  // memory that could not be given back
          EXPECT_EQ(world.vmm.mappings(), world.before);
          EXPECT_FALSE(world.allocator->counts().degraded);
        });
    EXPECT_GT(calls, 24);
  }
}

TEST(ZeroPage, OneCallThatFailsSetsPagesAsideOnlyForMemoryThatStays) {
  for (const auto& [name, batch] : batches()) {
    SCOPED_TRACE(name);
    for_every_call(
        batch, [](int k, int number) { return number == k; },
        [](World& world, const Status& status) {
          if (status.code() != Code::kQuarantined) return;
          EXPECT_EQ(world.vmm.mappings().size(), static_cast<std::size_t>(kPieces));
          EXPECT_EQ(world.allocator->counts().quarantined_pages, 1u);
        });
  }
}

TEST(ZeroPage, WhenTheUndoFailsTooThePieceIsSetAsideAndNothingIsLost) {
  for (const auto& [name, batch] : batches()) {
    SCOPED_TRACE(name);
    int bare = 0;
    for_every_call(
        batch, [](int k, int number) { return number >= k; },
        [&bare](World& world, const Status& status) {
          const std::size_t holes = world.unreadable();
          EXPECT_TRUE(holes == 0 || status.code() == Code::kQuarantined);
          bare += holes > 0 ? 1 : 0;
        });
    EXPECT_GT(bare, 0) << "no run left a piece without page and zero page";
  }
}

TEST(ZeroPage, AnyTwoCallsThatFail) {
  for (const auto& [name, batch] : batches()) {
    SCOPED_TRACE(name);
    for (int gap = 1; gap < 30; ++gap) {
      SCOPED_TRACE("and the one " + std::to_string(gap) + " behind it");
      for_every_call(
          batch, [gap](int k, int number) { return number == k || number == k + gap; },
          [](World&, const Status&) {});
    }
  }
}

TEST(ZeroPage, APieceThatIsBareIsNeitherMappedNorUnmappedAgain) {
  World world;
  // Zero off, page refused, zero refused.
  int maps = 0;
  world.vmm.fault = [&maps](const std::string& call, int) {
    return call == "map" && ++maps <= 2 ? 999 : 0;
  };
  const Status status = world.allocator->map(0, {kPage}).status();
  EXPECT_EQ(status.code(), Code::kQuarantined) << status.to_string();
  EXPECT_EQ(world.vmm.mappings().size(), static_cast<std::size_t>(kPieces) - 1);
  EXPECT_EQ(world.vmm.handles(), 2u * kLayers * kBuffers + 1) << "the batch's memory is back";
  EXPECT_EQ(world.allocator->counts().quarantined_pages, 1u);
  EXPECT_EQ(world.allocator->map(0, {kPage}).status().code(), Code::kQuarantined);
  EXPECT_EQ(world.allocator->unmap(0, {kPage}).code(), Code::kQuarantined);
  EXPECT_TRUE(world.allocator->map(0, {3 * kPage}).ok()) << "the others go on";
  world.check_all_comes_back();
}

TEST(ZeroPage, TensorsThatCannotBeMadeLeaveNothing) {
  for (const bool all : {false, true}) {
    for (int k = 0;; ++k) {
      SCOPED_TRACE("call " + std::to_string(k) + (all ? " and all behind it" : ""));
      World world(false);
      world.vmm.start_counting();
      world.fail_calls([k, all](int number) { return number == k || (all && number > k); });
      const Status status = world.allocator->create_tensors(0, shape());
      const bool reached = static_cast<int>(world.vmm.calls().size()) > k;
      ASSERT_EQ(status.ok(), !reached);
      if (!reached) break;
      EXPECT_FALSE(world.allocator->tensors_created(0));
      if (status.code() != Code::kQuarantined) {
        EXPECT_EQ(world.vmm.reserved_bytes() + world.vmm.used_bytes(), 0u);
      }
      world.vmm.fault = {};
      world.check_all_comes_back();
    }
  }
}

TEST(ZeroPage, GivingBackIsTriedAgainWhereItFailed) {
  for (int k = 0;; ++k) {
    SCOPED_TRACE("call " + std::to_string(k));
    World world;
    world.fail_calls([k](int number) { return number == k; });
    const Status status = world.allocator->release_all();
    if (static_cast<int>(world.vmm.calls().size()) <= k) {
      EXPECT_TRUE(status.ok());
      break;
    }
    // A device that cannot be waited for is no reason to keep its memory.
    EXPECT_EQ(status.ok(), k == 0);
    world.check_all_comes_back();
  }
}

}  // namespace
}  // namespace kv
