#include "harness/cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::AllOf;
using ::testing::HasSubstr;

Parsed parse(std::vector<std::string> words) {
  words.insert(words.begin(), "kvdrill");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

TEST(CommandLine, RunHasTheFolderAndTheFakeCardByDefault) {
  const auto parsed = parse({"run"});
  ASSERT_TRUE(parsed.line);
  EXPECT_EQ(parsed.line->command, Command::kRun);
  EXPECT_THAT(parsed.line->paths, ElementsAre("scenarios"));
  EXPECT_EQ(parsed.line->card, "fake");
  EXPECT_EQ(parsed.line->repeat, 1u);
  EXPECT_EQ(parsed.line->format, "text");
}

TEST(CommandLine, TakesPathsAndOptionsInAnyOrder) {
  const auto parsed =
      parse({"run", "--repeat", "200", "a.toml", "-j2", "--format", "json", "b", "--shard", "2/3"});
  ASSERT_TRUE(parsed.line);
  EXPECT_THAT(parsed.line->paths, ElementsAre("a.toml", "b"));
  EXPECT_EQ(parsed.line->repeat, 200u);
  EXPECT_EQ(parsed.line->jobs, 2);
  EXPECT_EQ(parsed.line->shard_index, 2u);
  EXPECT_EQ(parsed.line->shard_count, 3u);
}

TEST(CommandLine, WrongWordsAreUsageErrors) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"ruin"},
      {"run", "--repaet", "2"},
      {"run", "--repeat", "0"},
      {"run", "--repeat", "many"},
      {"run", "--format", "xml"},
      {"run", "--card", "real"},
      {"run", "--shard", "4/3"},
      {"run", "--shard", "0/3"},
      {"run", "--shard", "1/2x"},
      {"prove", "--until-fail"},
      {"prove", "--last-failed"},
      {"run", "--max-fail", "0"},
      {"compare", "a.json"},
      {"compare", "a.json", "b.json", "c.json"},
      {"new"},
      {"new", "a", "b"},
      {"doctor", "--repeat", "2"},
  };
  for (const auto& words : wrong) {
    testing::internal::CaptureStderr();
    const auto parsed = parse(words);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_FALSE(parsed.line) << ::testing::PrintToString(words);
    EXPECT_EQ(parsed.exit_code, 2) << ::testing::PrintToString(words);
    EXPECT_NE(said, "") << ::testing::PrintToString(words);
  }
}

TEST(CommandLine, ANumberOutOfRangeIsToldTheRangeInWholeNumbers) {
  testing::internal::CaptureStderr();
  parse({"run", "--max-fail", "0"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("not in range"), HasSubstr("1000000")));
}

TEST(CommandLine, TheSmallCommandsHaveTheirNames) {
  const auto compare = parse({"compare", "a.json", "b.json", "--format", "json"});
  ASSERT_TRUE(compare.line);
  EXPECT_EQ(compare.line->command, Command::kCompare);
  EXPECT_THAT(compare.line->paths, ElementsAre("a.json", "b.json"));
  EXPECT_EQ(parse({"doctor"}).line->command, Command::kDoctor);
  EXPECT_EQ(parse({"new", "x"}).line->command, Command::kNew);
}

TEST(CommandLine, HelpIsNoError) {
  testing::internal::CaptureStdout();
  const auto parsed = parse({"--help"});
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_FALSE(parsed.line);
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_THAT(said, HasSubstr("prove"));
}

}  // namespace
}  // namespace kv::drill
