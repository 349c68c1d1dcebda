// What a build skips, and what it says of it.
#include "harness/cli/suite.h"

#include <gtest/gtest.h>

namespace kv::drill {
namespace {

TEST(SuiteTest, WhatIsNotUnderASanitizerIsSkippedWithTheReasonOfTheFile) {
  Drill drill;
  EXPECT_EQ(reason_to_skip(drill, nullptr, "asan"), "");
  drill.not_under = {"asan"};
  EXPECT_EQ(reason_to_skip(drill, nullptr, "asan"), "not under asan, as the file says");
  drill.not_under_reason = "it reads freed memory";
  EXPECT_EQ(reason_to_skip(drill, nullptr, "asan"),
            "not under asan, as the file says: it reads freed memory");
  EXPECT_EQ(reason_to_skip(drill, nullptr, "tsan"), "");
  EXPECT_EQ(reason_to_skip(drill, nullptr, ""), "");
}

TEST(SuiteTest, AProofIsSkippedForItsOwnReasonOrItsDrills) {
  Drill drill;
  drill.not_under = {"asan"};
  drill.not_under_reason = "of the drill";
  Proof proof;
  proof.not_under = {"tsan"};
  proof.reason = "of the proof";
  EXPECT_EQ(reason_to_skip(drill, &proof, "tsan"),
            "not under tsan, as the file says: of the proof");
  EXPECT_EQ(reason_to_skip(drill, &proof, "asan"),
            "not under asan, as the file says: of the drill");
}

TEST(ReasonToSkip, ACardOfItsOwnSizeIsOnlyTheFakeOne) {
  Suite suite;
  Drill drill;
  suite.fake_card = false;
  EXPECT_EQ(reason_to_skip(suite, drill, nullptr), "");
  drill.device_bytes = 12 << 20;
  EXPECT_NE(reason_to_skip(suite, drill, nullptr), "");
  suite.fake_card = true;
  EXPECT_EQ(reason_to_skip(suite, drill, nullptr), "");
}

// A step that only speaks of a moment.
struct Speaks {
  std::string of;
  std::string text() const { return of; }
  void check(Flow&) const {}
  void foretell(Ahead& ahead) const { ahead.moments.insert(of); }
  Outcome carry_out(Executor&) const { return {}; }
};

TEST(ReasonToSkip, AMomentThatTheDriverHasNotIsNamed) {
  Suite suite;
  suite.not_of_driver = {"driver.cuMemMap"};
  Drill drill;
  drill.steps.emplace_back().deed = Speaks{"vmm.map"};
  EXPECT_EQ(reason_to_skip(suite, drill, nullptr), "");
  drill.steps.front().body.emplace_back().deed = Speaks{"driver.cuMemMap.done"};
  EXPECT_EQ(reason_to_skip(suite, drill, nullptr),
            "the file names driver.cuMemMap, a moment of the fake card, which this driver has not");
  suite.not_of_driver = {};
  EXPECT_EQ(reason_to_skip(suite, drill, nullptr), "");
}

}  // namespace
}  // namespace kv::drill
