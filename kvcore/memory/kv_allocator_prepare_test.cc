// The two-phase unmap: prepare, then commit or abort, with every retry that a lost reply can cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kPage = ModelVmm::kPage;

class KvAllocatorPrepare : public ::testing::Test {
 protected:
  KvAllocatorPrepare() {
    const KvShape shape{2, 2, 16u * kPage, ModelVmm::kPage};
    EXPECT_TRUE(allocator_->create_tensors(0, shape).ok());
    EXPECT_TRUE(allocator_->create_tensors(1, shape).ok());
    EXPECT_TRUE(allocator_->map(0, {0, kPage, 2 * kPage}).ok());
    EXPECT_TRUE(allocator_->map(1, {0}).ok());
    vmm_.start_counting();
  }
  ~KvAllocatorPrepare() override { EXPECT_THAT(vmm_.broken(), IsEmpty()); }

  static void expect_refused(const Status& status, Code code, const char* why) {
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr(why));
  }

  ModelVmm vmm_;
  std::unique_ptr<KvAllocator> allocator_ = make_kv_allocator(vmm_, {});
};

TEST_F(KvAllocatorPrepare, PreparingChangesNothingOnTheDevice) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0, kPage}, "a").ok());
  EXPECT_THAT(vmm_.calls(), IsEmpty());
  EXPECT_EQ(allocator_->counts().pending_unmaps, 1u);
  EXPECT_EQ(allocator_->counts().mapped_pages, 16u);
}

TEST_F(KvAllocatorPrepare, CommittingUnmapsExactlyWhatWasPrepared) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {2 * kPage, 0}, "a").ok());
  ASSERT_TRUE(allocator_->commit_unmap(0, "a").ok());
  EXPECT_EQ(allocator_->counts().pending_unmaps, 0u);
  EXPECT_EQ(allocator_->counts().mapped_pages, 8u);
  EXPECT_TRUE(vmm_.mappings().contains(*allocator_->tensor(0, 1) + kPage));
  EXPECT_TRUE(allocator_->map(0, {0}).ok());
}

TEST_F(KvAllocatorPrepare, AbortingLetsThePagesBeAndFree) {
  const auto before = vmm_.mappings();
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, "a").ok());
  ASSERT_TRUE(allocator_->abort_unmap(0, "a").ok());
  EXPECT_EQ(vmm_.mappings(), before);
  EXPECT_EQ(allocator_->counts().pending_unmaps, 0u);
  EXPECT_TRUE(allocator_->unmap(0, {0}).ok());
}

TEST_F(KvAllocatorPrepare, EachEndIsIdempotentAndExcludesTheOther) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, "done").ok());
  ASSERT_TRUE(allocator_->commit_unmap(0, "done").ok());
  ASSERT_TRUE(allocator_->prepare_unmap(0, {kPage}, "left").ok());
  ASSERT_TRUE(allocator_->abort_unmap(0, "left").ok());
  const auto before = vmm_.mappings();
  vmm_.start_counting();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(allocator_->commit_unmap(0, "done").ok());
    EXPECT_TRUE(allocator_->abort_unmap(0, "left").ok());
    expect_refused(allocator_->abort_unmap(0, "done"), Code::kFailedPrecondition, "committed");
    expect_refused(allocator_->commit_unmap(0, "left"), Code::kFailedPrecondition, "aborted");
  }
  EXPECT_EQ(vmm_.mappings(), before);
  EXPECT_THAT(vmm_.calls(), IsEmpty());
}

TEST_F(KvAllocatorPrepare, PreparingAgainSucceedsWhilePendingAndAfterItsCommit) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0, kPage}, "a").ok());
  EXPECT_TRUE(allocator_->prepare_unmap(0, {kPage, 0}, "a").ok());
  EXPECT_EQ(allocator_->counts().pending_unmaps, 1u);
  ASSERT_TRUE(allocator_->commit_unmap(0, "a").ok());
  // The reply of a combined prepare and commit was lost: the whole of it comes again.
  EXPECT_TRUE(allocator_->prepare_unmap(0, {0, kPage}, "a").ok());
  EXPECT_EQ(allocator_->counts().pending_unmaps, 0u);
  EXPECT_TRUE(allocator_->commit_unmap(0, "a").ok());
}

TEST_F(KvAllocatorPrepare, AnIdStandsForTheOffsetsThatItWasFirstUsedWith) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, "a").ok());
  expect_refused(allocator_->prepare_unmap(0, {kPage}, "a"), Code::kFailedPrecondition,
                 "other offsets: 0");
  ASSERT_TRUE(allocator_->commit_unmap(0, "a").ok());
  expect_refused(allocator_->prepare_unmap(0, {kPage}, "a"), Code::kFailedPrecondition,
                 "other offsets: 0");
}

TEST_F(KvAllocatorPrepare, ALateRetryOfAnAbortedOneReservesNothing) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, "a").ok());
  ASSERT_TRUE(allocator_->abort_unmap(0, "a").ok());
  expect_refused(allocator_->prepare_unmap(0, {0}, "a"), Code::kFailedPrecondition, "aborted");
  EXPECT_EQ(allocator_->counts().pending_unmaps, 0u);
}

TEST_F(KvAllocatorPrepare, OneIsPendingPerGroup) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, "a").ok());
  expect_refused(allocator_->prepare_unmap(0, {kPage}, "b"), Code::kFailedPrecondition,
                 "transaction a is pending");
  EXPECT_TRUE(allocator_->prepare_unmap(1, {0}, "b").ok());
  EXPECT_EQ(allocator_->counts().pending_unmaps, 2u);
  ASSERT_TRUE(allocator_->abort_unmap(0, "a").ok());
  EXPECT_TRUE(allocator_->prepare_unmap(0, {kPage}, "b").ok());
}

TEST_F(KvAllocatorPrepare, PreparedOffsetsAreNobodyElses) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {kPage}, "a").ok());
  expect_refused(allocator_->unmap(0, {0, kPage}), Code::kFailedPrecondition,
                 "offset 4096: failed_precondition: reserved by transaction a");
  expect_refused(allocator_->map(0, {5 * kPage, kPage}).status(), Code::kFailedPrecondition,
                 "reserved by transaction a");
  EXPECT_THAT(vmm_.calls(), IsEmpty());
  EXPECT_TRUE(allocator_->unmap(0, {0}).ok());
  EXPECT_TRUE(allocator_->commit_unmap(0, "a").ok());
}

TEST_F(KvAllocatorPrepare, WhatIsNotMappedCannotBePrepared) {
  expect_refused(allocator_->prepare_unmap(0, {0, 3 * kPage}, "a"), Code::kFailedPrecondition,
                 "offset 12288");
  EXPECT_EQ(allocator_->counts().pending_unmaps, 0u);
  EXPECT_TRUE(allocator_->prepare_unmap(0, {0}, "a").ok());
}

TEST_F(KvAllocatorPrepare, AnUnknownOrNamelessTransactionIsRefused) {
  expect_refused(allocator_->commit_unmap(0, "x"), Code::kNotFound, "transaction x");
  expect_refused(allocator_->abort_unmap(0, "x"), Code::kNotFound, "transaction x");
  expect_refused(allocator_->prepare_unmap(0, {0}, ""), Code::kInvalidArgument,
                 "0 bytes, expected 1 to 256");
  expect_refused(allocator_->commit_unmap(0, ""), Code::kInvalidArgument,
                 "0 bytes, expected 1 to 256");
  expect_refused(allocator_->abort_unmap(0, ""), Code::kInvalidArgument,
                 "0 bytes, expected 1 to 256");
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, "a").ok());
  expect_refused(allocator_->commit_unmap(1, "a"), Code::kNotFound, "group 1, transaction a");
}

TEST_F(KvAllocatorPrepare, AnEmptyTransactionIsOneToo) {
  ASSERT_TRUE(allocator_->prepare_unmap(0, {}, "a").ok());
  EXPECT_TRUE(allocator_->commit_unmap(0, "a").ok());
  EXPECT_THAT(vmm_.calls(), IsEmpty());
}

TEST_F(KvAllocatorPrepare, EndedTransactionsAreRememberedForRetriesButNotForEver) {
  for (int i = 0; i < 256; ++i) {
    const std::string id = std::to_string(i);
    ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, id).ok());
    ASSERT_TRUE(allocator_->abort_unmap(0, id).ok());
  }
  EXPECT_TRUE(allocator_->abort_unmap(0, "0").ok());
  ASSERT_TRUE(allocator_->prepare_unmap(0, {0}, "one more").ok());
  ASSERT_TRUE(allocator_->abort_unmap(0, "one more").ok());
  EXPECT_EQ(allocator_->abort_unmap(0, "0").code(), Code::kNotFound);
  EXPECT_TRUE(allocator_->abort_unmap(0, "1").ok());
}

}  // namespace
}  // namespace kv
