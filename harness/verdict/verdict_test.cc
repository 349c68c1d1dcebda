#include "harness/verdict/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kv::drill {
namespace {

DrillResult full_result() {
  DrillResult result;
  result.name = "stalled header / silent";
  result.file = "scenarios/listener/stalled_header.toml";
  result.arm = "silent";
  result.verdict = Verdict::kFail;
  result.ms = 12;
  result.ns = 12'345'678;
  result.checks = {{"cut off", Verdict::kFail, "it said \"no\"\nand left", {"a.toml", 3, 5}},
                   {"no_hang", Verdict::kPass, "", {}}};
  result.processes = {{"worker", 0, 0, ""}, {"reader", -1, 11, "SIGSEGV"}};
  result.folder = "/r/x";
  result.repeat = "kvdrill run a.toml";
  return result;
}

TEST(VerdictTest, ResultSurvivesJson) {
  const DrillResult before = full_result();
  const auto after = result_from_json(result_to_json(before));
  ASSERT_TRUE(after) << after.error();
  EXPECT_EQ(after->name, before.name);
  EXPECT_EQ(after->file, before.file);
  EXPECT_EQ(after->arm, before.arm);
  EXPECT_EQ(after->verdict, before.verdict);
  EXPECT_EQ(after->ms, before.ms);
  EXPECT_EQ(after->ns, before.ns);
  EXPECT_EQ(after->folder, before.folder);
  EXPECT_EQ(after->repeat, before.repeat);
  ASSERT_EQ(after->checks.size(), 2u);
  EXPECT_EQ(after->checks[0].name, "cut off");
  EXPECT_EQ(after->checks[0].verdict, Verdict::kFail);
  EXPECT_EQ(after->checks[0].why, before.checks[0].why);
  EXPECT_EQ(after->checks[0].position.file, "a.toml");
  EXPECT_EQ(after->checks[0].position.line, 3);
  EXPECT_EQ(after->checks[0].position.column, 5);
  EXPECT_EQ(after->checks[1].position.line, 0);
  ASSERT_EQ(after->processes.size(), 2u);
  EXPECT_EQ(after->processes[1].exit, -1);
  EXPECT_EQ(after->processes[1].signal, 11);
  EXPECT_EQ(after->processes[1].core_signal, "SIGSEGV");
}

TEST(VerdictTest, JsonIsOneLine) {
  EXPECT_EQ(result_to_json(full_result()).find('\n'), std::string::npos);
}

TEST(VerdictTest, BytesThatAreNoUtf8AreReplacedInsteadOfLosingTheVerdict) {
  DrillResult result = full_result();
  result.checks[0].why = "bad \xff byte";
  const auto after = result_from_json(result_to_json(result));
  ASSERT_TRUE(after) << after.error();
  EXPECT_THAT(after->checks[0].why, ::testing::StartsWith("bad "));
}

TEST(VerdictTest, EveryVerdictHasItsName) {
  DrillResult result = full_result();
  for (const auto& [verdict, name] : {std::pair{Verdict::kPass, "pass"},
                                      {Verdict::kSkip, "skip"},
                                      {Verdict::kVoid, "void"},
                                      {Verdict::kFail, "fail"},
                                      {Verdict::kError, "error"}}) {
    EXPECT_EQ(verdict_name(verdict), name);
    result.verdict = verdict;
    EXPECT_EQ(result_from_json(result_to_json(result))->verdict, verdict);
  }
}

TEST(VerdictTest, TextThatIsNoResultIsRefusedWithAReason) {
  using ::testing::HasSubstr;
  EXPECT_THAT(result_from_json("").error(), HasSubstr("not a drill's result"));
  EXPECT_THAT(result_from_json("{}").error(), HasSubstr("name"));
  std::string text = result_to_json(full_result());
  text.replace(text.find("\"fail\""), 6, "\"fine\"");
  EXPECT_THAT(result_from_json(text).error(), HasSubstr("unknown verdict 'fine'"));
}

}  // namespace
}  // namespace kv::drill
