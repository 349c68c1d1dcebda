#include "harness/cli/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/report/report.h"

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Judgements of(std::vector<Judged> all) {
  return {false, std::move(all)};
}

TEST(Compare, SortsByWhatBecameOfEachName) {
  const Comparison all = compare(of({{"same", Verdict::kFail, 5, "x"},
                                     {"worse", Verdict::kPass, 5, ""},
                                     {"void to fail", Verdict::kVoid, 5, "x"},
                                     {"mended", Verdict::kError, 5, "x"},
                                     {"better", Verdict::kError, 5, "x"},
                                     {"left out", Verdict::kPass, 5, ""},
                                     {"gone", Verdict::kFail, 5, "x"}}),
                                 of({{"same", Verdict::kFail, 6, "x"},
                                     {"worse", Verdict::kVoid, 5, "why"},
                                     {"void to fail", Verdict::kFail, 5, "x"},
                                     {"mended", Verdict::kPass, 5, ""},
                                     {"better", Verdict::kFail, 5, "x"},
                                     {"left out", Verdict::kSkip, 5, "x"},
                                     {"fresh", Verdict::kPass, 5, ""},
                                     {"fresh and bad", Verdict::kFail, 5, "x"}}));
  const auto names = [](const std::vector<Difference>& rows) {
    std::string text;
    for (const Difference& row : rows) {
      text += (row.after.name.empty() ? row.before.name : row.after.name) + ";";
    }
    return text;
  };
  EXPECT_EQ(names(all.worse), "worse;void to fail;fresh and bad;");
  EXPECT_EQ(names(all.mended), "mended;");
  EXPECT_EQ(names(all.changed), "better;left out;");
  EXPECT_EQ(names(all.appeared), "fresh;");
  EXPECT_EQ(names(all.vanished), "gone;");
  EXPECT_EQ(all.same, 1u);
}

TEST(Compare, ACheckThatIsNoLongerJudgedIsAChange) {
  DrillResult before, after;
  before.name = after.name = "a";
  before.checks = {{"prompt_exit", Verdict::kPass, "", {}}};
  after.checks = {{"prompt_exit", Verdict::kNotJudged, "no note", {}}};
  const auto was = judgements_from_json(run_json({before}, Totals()));
  const auto is = judgements_from_json(run_json({after}, Totals()));
  ASSERT_TRUE(was && is);
  EXPECT_THAT(comparison_text(compare(*was, *is), false),
              HasSubstr("changed  a: pass -> pass, 1 not judged: prompt_exit"));
  EXPECT_EQ(compare(*is, *is).same, 1u);
}

TEST(Compare, TimesAreForInformation) {
  const Comparison all =
      compare(of({{"slow", Verdict::kPass, 50, ""}, {"few", Verdict::kPass, 2, ""}}),
              of({{"slow", Verdict::kPass, 100, ""}, {"few", Verdict::kPass, 9, ""}}));
  ASSERT_EQ(all.times.size(), 1u);
  EXPECT_TRUE(all.worse.empty());
  EXPECT_THAT(comparison_text(all, false), HasSubstr("time     slow: 50 ms -> 100 ms\n"));
}

TEST(Compare, ReadsWhatRunAndProveWrite) {
  DrillResult result;
  result.name = "a";
  result.verdict = Verdict::kFail;
  result.ms = 7;
  result.checks = {{"fine", Verdict::kPass, "", {}}, {"bad", Verdict::kFail, "why", {}}};
  const auto runs = judgements_from_json(run_json({result}, Totals()));
  ASSERT_TRUE(runs) << runs.error();
  EXPECT_FALSE(runs->of_proofs);
  EXPECT_EQ(runs->all.at(0).ms, 7);
  EXPECT_EQ(runs->all.at(0).why, "bad: why");
  ProofResult proof;
  proof.scenario = "a";
  proof.skip = {"x.y", "z"};
  const auto proofs = judgements_from_json(prove_json({proof}, 1, std::nullopt));
  ASSERT_TRUE(proofs) << proofs.error();
  EXPECT_TRUE(proofs->of_proofs);
  EXPECT_EQ(proofs->all.at(0).name, "a without x.y z");
}

TEST(Compare, ControlBytesOfAFileDoNotReachTheTerminal) {
  const Comparison all = compare(of({}), of({{"a\x1b[2J", Verdict::kFail, 1, "\x07"}}));
  EXPECT_THAT(comparison_text(all, false), Not(HasSubstr("\x1b")));
  EXPECT_THAT(comparison_text(all, true), HasSubstr("\x1b[31mworse"));
}

}  // namespace
}  // namespace kv::drill
