// The allocator's contract: shapes, what batches answer, the order of driver calls. What failures
// leave behind is in kv_allocator_undo_test.cc, the two-phase unmap in
// kv_allocator_prepare_test.cc.
#include "kvcore/memory/kv_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fakes/doubles/mock_vmm.h"
#include "fakes/doubles/model_vmm.h"

namespace kv {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::InSequence;
using ::testing::IsEmpty;
using ::testing::Return;
using ::testing::StrictMock;

constexpr std::int64_t kPage = ModelVmm::kPage;

KvShape shape(int layers, int buffers, int pages_per_buffer) {
  return {layers, buffers, static_cast<std::size_t>(buffers * pages_per_buffer * kPage),
          static_cast<std::size_t>(kPage)};
}

class KvAllocatorTest : public ::testing::Test {
 protected:
  ~KvAllocatorTest() override { EXPECT_THAT(vmm_.broken(), IsEmpty()); }
  ModelVmm vmm_;
  std::unique_ptr<KvAllocator> allocator_ = make_kv_allocator(vmm_, {});
};

TEST_F(KvAllocatorTest, TensorsAreOneRangePerLayerAndNoMemory) {
  EXPECT_FALSE(allocator_->tensors_created(0));
  ASSERT_TRUE(allocator_->create_tensors(0, shape(3, 2, 8)).ok());
  EXPECT_TRUE(allocator_->tensors_created(0));
  EXPECT_EQ(vmm_.reserved_bytes(), 3u * 16 * kPage);
  EXPECT_EQ(vmm_.used_bytes(), 0u);
  EXPECT_EQ(allocator_->counts().reserved_bytes, vmm_.reserved_bytes());
  EXPECT_NE(*allocator_->tensor(0, 0), *allocator_->tensor(0, 2));
  EXPECT_EQ(allocator_->tensor(0, 3).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(allocator_->tensor(0, -1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(allocator_->tensor(1, 0).status().code(), Code::kNotFound);
}

TEST_F(KvAllocatorTest, AGroupHasItsTensorsOnce) {
  ASSERT_TRUE(allocator_->create_tensors(5, shape(1, 2, 8)).ok());
  EXPECT_EQ(allocator_->create_tensors(5, shape(1, 2, 8)).code(), Code::kAlreadyExists);
  EXPECT_TRUE(allocator_->create_tensors(6, shape(1, 2, 8)).ok());
  EXPECT_EQ(vmm_.reserved_bytes(), 2u * 16 * kPage);
}

TEST_F(KvAllocatorTest, AShapeThatCannotBeIsRefusedWithWhatWasExpected) {
  const auto refused = [this](KvShape wrong, const char* expected) {
    const Status status = allocator_->create_tensors(0, wrong);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(status.text()), HasSubstr(expected));
  };
  const KvShape good = shape(2, 2, 4);
  const auto with = [&good](auto member, auto value) {
    KvShape changed = good;
    changed.*member = value;
    return changed;
  };
  refused(with(&KvShape::layers, 0), "layers from 1 to 65536");
  refused(with(&KvShape::layers, 1 << 30), "layers from 1 to 65536");
  refused(with(&KvShape::buffers, 3), "1 or 2 buffers");
  refused(with(&KvShape::page_bytes, 0u), "multiples of 4096");
  refused(with(&KvShape::page_bytes, 4095u), "multiples of 4096");
  refused(with(&KvShape::tensor_bytes, 0u), "multiples of 8192");
  refused(with(&KvShape::tensor_bytes, 3u * kPage), "multiples of 8192");
  EXPECT_FALSE(allocator_->tensors_created(0));
  EXPECT_EQ(vmm_.reserved_bytes(), 0u);
}

TEST_F(KvAllocatorTest, AnOffsetIsAPageInEachBufferOfEachLayer) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(2, 2, 4)).ok());
  const auto fresh = allocator_->map(0, {kPage});
  ASSERT_TRUE(fresh.ok()) << fresh.status().to_string();
  EXPECT_THAT(*fresh, ElementsAre(kPage));
  const auto mappings = vmm_.mappings();
  EXPECT_EQ(mappings.size(), 4u);
  for (const int layer : {0, 1}) {
    const DeviceAddress base = *allocator_->tensor(0, layer);
    for (const DeviceAddress address : {base + kPage, base + 4 * kPage + kPage}) {
      ASSERT_TRUE(mappings.contains(address));
      EXPECT_EQ(mappings.at(address).access, Access::kReadWrite);
    }
  }
  EXPECT_EQ(allocator_->counts().mapped_pages, 4u);
}

TEST_F(KvAllocatorTest, ASingleBufferHasOnePagePerLayer) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(3, 1, 4)).ok());
  ASSERT_TRUE(allocator_->map(0, {3 * kPage}).ok());
  EXPECT_EQ(vmm_.mappings().size(), 3u);
  EXPECT_TRUE(vmm_.mappings().contains(*allocator_->tensor(0, 2) + 3 * kPage));
  EXPECT_EQ(allocator_->map(0, {4 * kPage}).status().code(), Code::kInvalidArgument);
}

TEST_F(KvAllocatorTest, MappedOffsetsAreLeftOutAndKeepTheirPages) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(1, 2, 4)).ok());
  ASSERT_TRUE(allocator_->map(0, {0, kPage}).ok());
  const auto before = vmm_.mappings();
  EXPECT_THAT(*allocator_->map(0, {kPage, 0}), IsEmpty());
  EXPECT_EQ(vmm_.mappings(), before);
  EXPECT_THAT(*allocator_->map(0, {3 * kPage, kPage, 2 * kPage}),
              ElementsAre(3 * kPage, 2 * kPage));
  EXPECT_THAT(*allocator_->map(0, {}), IsEmpty());
  EXPECT_EQ(allocator_->counts().mapped_pages, 8u);
}

TEST_F(KvAllocatorTest, UnmappingGivesTheMemoryBackAndTheOffsetMayBeMappedAgain) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(2, 2, 4)).ok());
  ASSERT_TRUE(allocator_->map(0, {0, kPage, 2 * kPage}).ok());
  ASSERT_TRUE(allocator_->unmap(0, {2 * kPage, 0}).ok());
  EXPECT_EQ(vmm_.used_bytes(), 4u * kPage);
  EXPECT_EQ(vmm_.handles(), 4u);
  EXPECT_EQ(allocator_->counts().mapped_pages, 4u);
  EXPECT_THAT(*allocator_->map(0, {0}), ElementsAre(0));
  EXPECT_TRUE(allocator_->unmap(0, {}).ok());
}

TEST_F(KvAllocatorTest, UnmappingWhatIsNotMappedIsRefusedWholeAndNamesTheOffset) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(1, 2, 4)).ok());
  ASSERT_TRUE(allocator_->map(0, {0}).ok());
  const auto before = vmm_.mappings();
  vmm_.start_counting();
  const Status status = allocator_->unmap(0, {0, kPage});
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.to_string(), HasSubstr("group 0, offset 4096"));
  EXPECT_EQ(vmm_.mappings(), before);
  EXPECT_THAT(vmm_.calls(), IsEmpty());
}

TEST_F(KvAllocatorTest, OffsetsThatCannotBeAreRefusedBeforeTheDriverIsCalled) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(1, 2, 4)).ok());
  vmm_.start_counting();
  const struct {
    std::vector<std::int64_t> offsets;
    const char* why;
  } kWrong[] = {
      {{-kPage}, "offset -4096: "},
      {{0, 1}, "offset 1: "},
      {{4 * kPage}, "offset 16384: "},
      {{INT64_MAX}, "offset 9223372036854775807: "},
      {{INT64_MIN}, "offset -9223372036854775808: "},
      {{0, kPage, 0}, "offset 0: "},
  };
  for (const auto& wrong : kWrong) {
    for (const Status& status :
         {allocator_->map(0, wrong.offsets).status(), allocator_->unmap(0, wrong.offsets),
          allocator_->prepare_unmap(0, wrong.offsets, "t")}) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << wrong.why;
      EXPECT_THAT(status.to_string(), HasSubstr(wrong.why));
    }
  }
  EXPECT_THAT(allocator_->map(0, {0, kPage, 0}).status().to_string(), HasSubstr("twice"));
  EXPECT_THAT(allocator_->map(0, {4 * kPage}).status().to_string(),
              HasSubstr("expected a multiple of 4096 from 0 to below 16384"));
  EXPECT_THAT(vmm_.calls(), IsEmpty());
}

TEST_F(KvAllocatorTest, AGroupWithoutTensorsIsNotFoundByAnyCall) {
  EXPECT_EQ(allocator_->map(9, {0}).status().code(), Code::kNotFound);
  EXPECT_EQ(allocator_->unmap(9, {0}).code(), Code::kNotFound);
  EXPECT_EQ(allocator_->prepare_unmap(9, {0}, "t").code(), Code::kNotFound);
  EXPECT_EQ(allocator_->commit_unmap(9, "t").code(), Code::kNotFound);
  EXPECT_EQ(allocator_->abort_unmap(9, "t").code(), Code::kNotFound);
  EXPECT_THAT(allocator_->map(9, {0}).status().to_string(), HasSubstr("group 9"));
}

TEST_F(KvAllocatorTest, GroupsHaveTheirOwnPages) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(1, 2, 4)).ok());
  ASSERT_TRUE(allocator_->create_tensors(1, shape(1, 1, 4)).ok());
  ASSERT_TRUE(allocator_->map(0, {0}).ok());
  EXPECT_EQ(allocator_->unmap(1, {0}).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(allocator_->map(1, {0}).ok());
  ASSERT_TRUE(allocator_->unmap(0, {0}).ok());
  EXPECT_EQ(allocator_->counts().mapped_pages, 1u);
}

TEST_F(KvAllocatorTest, OutOfMemoryKeepsItsCodeAndSaysWhichPage) {
  ModelVmm small(3 * kPage);
  const auto allocator = make_kv_allocator(small, {});
  ASSERT_TRUE(allocator->create_tensors(0, shape(1, 2, 4)).ok());
  ASSERT_TRUE(allocator->map(0, {0}).ok());
  const Status status = allocator->map(0, {kPage}).status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_EQ(status.native(), 2);
  EXPECT_THAT(status.to_string(), HasSubstr("group 0, offset 4096, layer 0, buffer 1"));
  EXPECT_EQ(small.used_bytes(), 2u * kPage);
  EXPECT_FALSE(allocator->counts().degraded);
}

TEST_F(KvAllocatorTest, ReleaseAllGivesEverythingBackAndTheGroupsAreGone) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(2, 2, 4)).ok());
  ASSERT_TRUE(allocator_->create_tensors(1, shape(1, 1, 4)).ok());
  ASSERT_TRUE(allocator_->map(0, {0, kPage}).ok());
  ASSERT_TRUE(allocator_->map(1, {kPage}).ok());
  ASSERT_TRUE(allocator_->prepare_unmap(0, {kPage}, "t").ok());
  ASSERT_TRUE(allocator_->release_all().ok());
  EXPECT_EQ(vmm_.reserved_bytes(), 0u);
  EXPECT_EQ(vmm_.used_bytes(), 0u);
  const KvCounts counts = allocator_->counts();
  EXPECT_EQ(counts.reserved_bytes + counts.mapped_pages + counts.quarantined_pages +
                counts.pending_unmaps,
            0u);
  EXPECT_FALSE(allocator_->tensors_created(0));
  EXPECT_EQ(allocator_->map(0, {0}).status().code(), Code::kNotFound);
  EXPECT_TRUE(allocator_->release_all().ok());
  EXPECT_TRUE(allocator_->create_tensors(0, shape(2, 2, 4)).ok());
}

TEST_F(KvAllocatorTest, TheDestructorLeavesTheDriverAlone) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(1, 2, 4)).ok());
  ASSERT_TRUE(allocator_->map(0, {0}).ok());
  vmm_.start_counting();
  allocator_.reset();
  EXPECT_THAT(vmm_.calls(), IsEmpty());
}

TEST_F(KvAllocatorTest, ThreadsMayUseItAtOnce) {
  ASSERT_TRUE(allocator_->create_tensors(0, shape(2, 2, 64)).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        const std::vector<std::int64_t> mine = {t * 16 * kPage, (t * 16 + i % 15 + 1) * kPage};
        EXPECT_TRUE(allocator_->map(0, mine).ok());
        EXPECT_EQ(allocator_->counts().mapped_pages % 4, 0u);
        EXPECT_TRUE(allocator_->unmap(0, mine).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(vmm_.used_bytes(), 0u);
}

// ---- the order of driver calls

class KvAllocatorOrder : public ::testing::Test {
 protected:
  static constexpr DeviceAddress kBase = 0x10000000;
  static constexpr MemHandle kFirst{1}, kSecond{2};
  static constexpr auto kSize = static_cast<std::size_t>(kPage);

  KvAllocatorOrder() {
    ON_CALL(vmm_, granularity()).WillByDefault(Return(kSize));
    EXPECT_CALL(vmm_, granularity());
    EXPECT_CALL(vmm_, reserve(8 * kSize)).WillOnce(Return(kBase));
    EXPECT_TRUE(allocator_->create_tensors(0, shape(1, 2, 4)).ok());
  }
  // The calls of mapping offset 0: K at the base, V half a tensor behind it.
  void expect_map() {
    EXPECT_CALL(vmm_, create(kSize, false)).WillOnce(Return(kFirst)).WillOnce(Return(kSecond));
    EXPECT_CALL(vmm_, map(kBase, kSize, kFirst));
    EXPECT_CALL(vmm_, set_access(kBase, kSize, Access::kReadWrite));
    EXPECT_CALL(vmm_, map(kValue, kSize, kSecond));
    EXPECT_CALL(vmm_, set_access(kValue, kSize, Access::kReadWrite));
  }
  static Status failed() { return Status::error(Code::kDriver, "test", "", 1); }

  static constexpr DeviceAddress kValue = kBase + 4 * kSize;
  StrictMock<MockVmm> vmm_;
  std::unique_ptr<KvAllocator> allocator_ = make_kv_allocator(vmm_, {});
  const InSequence in_order_;
};

TEST_F(KvAllocatorOrder, MapCreatesAllPagesThenMapsEachAndGivesAccess) {
  expect_map();
  EXPECT_TRUE(allocator_->map(0, {0}).ok());
}

TEST_F(KvAllocatorOrder, UnmapWaitsForWorkThenUnmapsAllThenReleases) {
  expect_map();
  EXPECT_CALL(vmm_, synchronize());
  EXPECT_CALL(vmm_, unmap(kBase, kSize));
  EXPECT_CALL(vmm_, unmap(kValue, kSize));
  EXPECT_CALL(vmm_, release(kFirst));
  EXPECT_CALL(vmm_, release(kSecond));
  EXPECT_TRUE(allocator_->map(0, {0}).ok());
  EXPECT_TRUE(allocator_->unmap(0, {0}).ok());
}

TEST_F(KvAllocatorOrder, UnmapThatCannotWaitForWorkTouchesNoPage) {
  expect_map();
  EXPECT_CALL(vmm_, synchronize()).WillOnce(Return(failed()));
  EXPECT_TRUE(allocator_->map(0, {0}).ok());
  EXPECT_EQ(allocator_->unmap(0, {0}).code(), Code::kDriver);
  EXPECT_EQ(allocator_->counts().mapped_pages, 2u);
}

TEST_F(KvAllocatorOrder, ReleaseAllWaitsThenUnmapsThenReleasesThenFreesTheAddress) {
  expect_map();
  EXPECT_CALL(vmm_, synchronize());
  EXPECT_CALL(vmm_, unmap(kBase, kSize));
  EXPECT_CALL(vmm_, unmap(kValue, kSize));
  EXPECT_CALL(vmm_, release(kFirst));
  EXPECT_CALL(vmm_, release(kSecond));
  EXPECT_CALL(vmm_, free_address(kBase, 8 * kSize));
  EXPECT_TRUE(allocator_->map(0, {0}).ok());
  EXPECT_TRUE(allocator_->release_all().ok());
}

TEST_F(KvAllocatorOrder, AFailedMapIsUndoneBackwardsUnmapsBeforeReleases) {
  EXPECT_CALL(vmm_, create(_, _)).WillOnce(Return(kFirst)).WillOnce(Return(kSecond));
  EXPECT_CALL(vmm_, map(kBase, kSize, kFirst));
  EXPECT_CALL(vmm_, set_access(kBase, kSize, Access::kReadWrite));
  EXPECT_CALL(vmm_, map(kValue, kSize, kSecond));
  EXPECT_CALL(vmm_, set_access(kValue, kSize, _)).WillOnce(Return(failed()));
  EXPECT_CALL(vmm_, unmap(kValue, kSize));
  EXPECT_CALL(vmm_, unmap(kBase, kSize));
  EXPECT_CALL(vmm_, release(kSecond));
  EXPECT_CALL(vmm_, release(kFirst));
  EXPECT_EQ(allocator_->map(0, {0}).status().native(), 1);
}

TEST_F(KvAllocatorOrder, AFailedCreateReleasesWhatWasCreatedAndMapsNothing) {
  EXPECT_CALL(vmm_, create(_, _))
      .WillOnce(Return(kFirst))
      .WillOnce(Return(Status::error(Code::kOutOfMemory, "test", "", 2)));
  EXPECT_CALL(vmm_, release(kFirst));
  EXPECT_EQ(allocator_->map(0, {0}).status().code(), Code::kOutOfMemory);
}

TEST_F(KvAllocatorOrder, AFailedUnmapMapsTheSamePagesAgainAndReleasesNothing) {
  expect_map();
  EXPECT_CALL(vmm_, synchronize());
  EXPECT_CALL(vmm_, unmap(kBase, kSize));
  EXPECT_CALL(vmm_, unmap(kValue, kSize)).WillOnce(Return(failed()));
  EXPECT_CALL(vmm_, map(kBase, kSize, kFirst));
  EXPECT_CALL(vmm_, set_access(kBase, kSize, Access::kReadWrite));
  EXPECT_TRUE(allocator_->map(0, {0}).ok());
  EXPECT_EQ(allocator_->unmap(0, {0}).code(), Code::kDriver);
  EXPECT_EQ(allocator_->counts().mapped_pages, 2u);
}

TEST_F(KvAllocatorOrder, ReleaseAllFreesNoAddressUnderAPageThatIsStillMapped) {
  expect_map();
  EXPECT_CALL(vmm_, synchronize());
  EXPECT_CALL(vmm_, unmap(kBase, kSize)).WillOnce(Return(failed()));
  EXPECT_CALL(vmm_, unmap(kValue, kSize));
  EXPECT_CALL(vmm_, release(kSecond));
  // The second call has what is left.
  EXPECT_CALL(vmm_, synchronize());
  EXPECT_CALL(vmm_, unmap(kBase, kSize));
  EXPECT_CALL(vmm_, release(kFirst));
  EXPECT_CALL(vmm_, free_address(kBase, 8 * kSize));
  EXPECT_TRUE(allocator_->map(0, {0}).ok());
  EXPECT_EQ(allocator_->release_all().code(), Code::kDriver);
  EXPECT_TRUE(allocator_->release_all().ok());
}

}  // namespace
}  // namespace kv
