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

}  // namespace
}  // namespace kv::drill
