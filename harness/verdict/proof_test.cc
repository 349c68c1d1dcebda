#include "harness/verdict/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Drill drill_named(std::string name) {
  Drill drill;
  drill.scenario = std::move(name);
  return drill;
}

Proof proof_of(std::string step, std::vector<std::string> fails) {
  Proof proof;
  Address address;
  address.site = std::move(step);
  proof.skip.push_back(address);
  proof.fails = std::move(fails);
  return proof;
}

DrillResult run_with(std::vector<CheckResult> checks) {
  DrillResult result;
  for (const CheckResult& check : checks) result.verdict = std::max(result.verdict, check.verdict);
  result.checks = std::move(checks);
  return result;
}

const CheckResult kPassed{"no_crash", Verdict::kPass, "", {}};
const CheckResult kCutOff{"cut off", Verdict::kFail, "no end", {}};
const CheckResult kStopped{"stopped", Verdict::kFail, "not done", {}};

TEST(Proof, PassesWhenExactlyTheNamedChecksFail) {
  const auto proof = proof_of("a.b", {"cut off", "stopped"});
  const auto result = judge(drill_named("d"), proof, run_with({kStopped, kPassed, kCutOff}));
  EXPECT_EQ(result.verdict, Verdict::kPass);
  EXPECT_EQ(result.why, "");
  EXPECT_THAT(result.skip, ElementsAre("a.b"));
}

TEST(Proof, FailsWhenANamedCheckHolds) {
  const auto result = judge(drill_named("d"), proof_of("a.b", {"cut off", "stopped"}),
                            run_with({kCutOff, kPassed}));
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_EQ(result.why, "did not fail: 'stopped'");
}

TEST(Proof, FailsWhenAnotherCheckFailsTooAndSaysWhy) {
  const auto result =
      judge(drill_named("d"), proof_of("a.b", {"cut off"}), run_with({kCutOff, kStopped}));
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(result.why, HasSubstr("failed too: 'stopped'"));
  EXPECT_THAT(result.why, HasSubstr("not done"));
}

TEST(Proof, WhatWasNotJudgedIsNoFailureAndSpoilsNothing) {
  const CheckResult open{"prompt_exit", Verdict::kNotJudged, "the drill was cut short", {}};
  EXPECT_EQ(
      judge(drill_named("d"), proof_of("a.b", {"cut off"}), run_with({kCutOff, open})).verdict,
      Verdict::kPass);
  EXPECT_EQ(judge(drill_named("d"), proof_of("a.b", {"prompt_exit"}), run_with({open})).verdict,
            Verdict::kFail);
}

TEST(Proof, FailsWhenNothingFails) {
  const auto result = judge(drill_named("d"), proof_of("a.b", {"cut off"}), run_with({kPassed}));
  EXPECT_EQ(result.verdict, Verdict::kFail);
}

TEST(Proof, IsVoidWhenTheSkipWasNeverReached) {
  const CheckResult unreached{"skip a.b", Verdict::kVoid, "never reached", {}};
  const auto result =
      judge(drill_named("d"), proof_of("a.b", {"cut off"}), run_with({kCutOff, unreached}));
  EXPECT_EQ(result.verdict, Verdict::kVoid);
  EXPECT_THAT(result.why, HasSubstr("never reached"));
}

TEST(Proof, IsAnErrorWhenTheHarnessFailed) {
  const CheckResult broken{"supervisor", Verdict::kError, "board full", {}};
  const auto result =
      judge(drill_named("d"), proof_of("a.b", {"cut off"}), run_with({kCutOff, broken}));
  EXPECT_EQ(result.verdict, Verdict::kError);
}

TEST(Proof, ASkippedRunIsNoPass) {
  DrillResult run = run_with({{"skip", Verdict::kSkip, "not under tsan", {}}});
  const auto result = judge(drill_named("d"), proof_of("a.b", {"cut off"}), run);
  EXPECT_EQ(result.verdict, Verdict::kSkip);
}

TEST(Surviving, NamesStepsWithoutAPassedProof) {
  Engine engine;
  engine.steps = {"c", "a", "b"};
  ProofResult good, bad;
  good.skip = {"a@worker"};
  bad.skip = {"b"};
  bad.verdict = Verdict::kFail;
  EXPECT_THAT(surviving(engine, {good, bad}), ElementsAre("b", "c"));
}

TEST(Surviving, IsEmptyWhenAllAreProven) {
  Engine engine;
  engine.steps = {"a", "b"};
  ProofResult both;
  both.skip = {"a[1]", "b#2"};
  EXPECT_THAT(surviving(engine, {both}), IsEmpty());
}

}  // namespace
}  // namespace kv::drill
