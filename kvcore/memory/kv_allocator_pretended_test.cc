// A driver that lies: it says of an unmap that it was done, and it was not. What is mapped there
// then is in nobody's books, and shows only when the address is used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "fakes/doubles/test_hooks.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kPage = ModelVmm::kPage;
constexpr int kLayers = 2, kBuffers = 2;

class PretendedUnmapTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    KvShape shape{kLayers, kBuffers, kBuffers * 8 * ModelVmm::kPage, ModelVmm::kPage};
    shape.zero_page = GetParam();
    ASSERT_TRUE(allocator_->create_tensors(0, shape).ok());
  }
  // Of the unmaps from now on, the `which`-th (from 0) is not made.
  void pretend(int which) {
    vmm_.pretend = [this, which](const std::string& call, int) {
      return call == "unmap" && unmaps_++ == which;
    };
    unmaps_ = 0;
  }
  void expect_all_comes_back() {
    const Status status = allocator_->release_all();
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(vmm_.used_bytes(), 0u);
    EXPECT_EQ(vmm_.reserved_bytes(), 0u);
    EXPECT_THAT(vmm_.mappings(), IsEmpty());
  }
  Code map(std::int64_t offset) { return allocator_->map(0, {offset}).status().code(); }

  ModelVmm vmm_;
  std::vector<std::string> errors_;
  std::unique_ptr<KvAllocator> allocator_ =
      make_kv_allocator(vmm_, [this](Severity severity, std::string_view line) {
        if (severity == Severity::kError) errors_.emplace_back(line);
      });
  int unmaps_ = 0;
};

INSTANTIATE_TEST_SUITE_P(WithAndWithoutAZeroPage, PretendedUnmapTest, ::testing::Bool());

// Whichever page of a mapped offset it is, or with the zero page, whichever piece.
TEST_P(PretendedUnmapTest, SetsItsOffsetAsideAndTheOthersServe) {
  for (int which = 0; which < kLayers * kBuffers; ++which) {
    SCOPED_TRACE(which);
    const std::int64_t offset = which * kPage;
    ASSERT_EQ(map(offset), Code::kOk);
    errors_.clear();
    pretend(which);
    const Status unmapped = allocator_->unmap(0, {offset});
    vmm_.pretend = nullptr;
    // The zero page that is put in its place shows it at once.
    EXPECT_EQ(unmapped.code(), GetParam() ? Code::kQuarantined : Code::kOk);
    EXPECT_EQ(map(offset), Code::kQuarantined);
    EXPECT_EQ(map(offset), Code::kQuarantined);
    EXPECT_EQ(map(7 * kPage), Code::kOk);
    EXPECT_TRUE(allocator_->unmap(0, {7 * kPage}).ok());
    EXPECT_TRUE(allocator_->counts().degraded);
    EXPECT_THAT(*allocator_->page_states(0, {offset}), ElementsAre(PageMap::kQuarantined));
    const auto said = std::count_if(errors_.begin(), errors_.end(), [](const std::string& line) {
      return line.find("never handed out again") != std::string::npos;
    });
    EXPECT_EQ(said, 1);
  }
  expect_all_comes_back();
  EXPECT_THAT(vmm_.broken(), ::testing::Each(HasSubstr("map: something is mapped there")));
}

TEST_P(PretendedUnmapTest, AtTheEndIsMadeGoodByTheNextTry) {
  ASSERT_EQ(map(0), Code::kOk);
  pretend(0);
  EXPECT_FALSE(allocator_->release_all().ok());
  vmm_.pretend = nullptr;
  EXPECT_GT(vmm_.reserved_bytes(), 0u);
  expect_all_comes_back();
}

TEST(PretendedUnmap, LeavesTheOtherOffsetsOfTheBatchThatMeetsItFree) {
  ModelVmm vmm;
  const auto allocator = make_kv_allocator(vmm, {});
  ASSERT_TRUE(allocator->create_tensors(0, {1, 1, 8 * ModelVmm::kPage, ModelVmm::kPage}).ok());
  ASSERT_TRUE(allocator->map(0, {kPage}).ok());
  vmm.pretend = [](const std::string& call, int) { return call == "unmap"; };
  ASSERT_TRUE(allocator->unmap(0, {kPage}).ok());
  vmm.pretend = nullptr;
  EXPECT_EQ(allocator->map(0, {0, kPage, 2 * kPage}).status().code(), Code::kQuarantined);
  EXPECT_THAT(*allocator->page_states(0, {0, kPage, 2 * kPage}),
              ElementsAre(PageMap::kUnmapped, PageMap::kQuarantined, PageMap::kUnmapped));
  EXPECT_EQ(vmm.handles(), 0u);
  EXPECT_EQ(allocator->counts().quarantined_pages, 1u);
  EXPECT_TRUE(allocator->map(0, {0, 2 * kPage}).ok());
  EXPECT_TRUE(allocator->release_all().ok());
  EXPECT_EQ(vmm.used_bytes() + vmm.reserved_bytes(), 0u);
}

// What it was before: refused for ever, and with it whoever asks for the lowest page.
TEST(PretendedUnmap, IsMetForEverWhereItsOffsetIsNotSetAside) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  TestHooks hooks;
  hooks.skip("allocator.map.set_aside");
  ModelVmm vmm;
  const auto allocator = make_kv_allocator(vmm, {});
  ASSERT_TRUE(allocator->create_tensors(0, {1, 1, 8 * ModelVmm::kPage, ModelVmm::kPage}).ok());
  ASSERT_TRUE(allocator->map(0, {kPage}).ok());
  vmm.pretend = [](const std::string& call, int) { return call == "unmap"; };
  ASSERT_TRUE(allocator->unmap(0, {kPage}).ok());
  vmm.pretend = nullptr;
  for (int time = 0; time < 3; ++time) {
    EXPECT_EQ(allocator->map(0, {kPage}).status().code(), Code::kDriver);
    EXPECT_FALSE(allocator->counts().degraded);
  }
}

}  // namespace
}  // namespace kv
