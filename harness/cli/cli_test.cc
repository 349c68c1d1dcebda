#include "harness/cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace kv::drill {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

// What is said of a command line that is refused; empty: it is not.
std::string refusal(const std::vector<std::string>& words) {
  testing::internal::CaptureStderr();
  const auto parsed = parse(words);
  const std::string said = testing::internal::GetCapturedStderr();
  return parsed.line ? "" : said;
}

TEST(CommandLine, ANumberOutOfRangeIsToldTheRangeInWholeNumbers) {
  for (const char* option : {"--repeat", "--max-fail"}) {
    for (const char* value : {"0", "-1", "1000001", "1e25", "1.5", "0x10", "010", "+1", " 1", "",
                              "18446744073709551617", "99999999999999999999999999"}) {
      EXPECT_THAT(refusal({"run", option, value}), HasSubstr("from 1 to 1000000"))
          << option << " " << value;
    }
    EXPECT_EQ(refusal({"run", option, "1000000"}), "");
  }
  EXPECT_THAT(refusal({"run", "-j", "-1"}), HasSubstr("from 0 to 1024"));
  EXPECT_THAT(refusal({"run", "--jobs=1025"}), HasSubstr("from 0 to 1024"));
}

TEST(CommandLine, ASeedIsAnyNumberOf64Bits) {
  EXPECT_THAT(refusal({"run", "--shuffle", "-1"}), HasSubstr("from 0 to 18446744073709551615"));
  EXPECT_THAT(refusal({"run", "--shuffle", "18446744073709551616"}), HasSubstr("whole number"));
  EXPECT_EQ(parse({"run", "--shuffle", "18446744073709551615"}).line->shuffle, ~std::uint64_t{0});
  EXPECT_EQ(parse({"run", "--shuffle", "0"}).line->shuffle, 0u);
}

TEST(CommandLine, AShardIsOneOfSomeParts) {
  for (const char* shard :
       {"4/3", "0/3", "1/2x", "-1/3", "1/", "/3", "3", "1/1000001", "1/2/3",
        "18446744073709551617/18446744073709551617", "1/18446744073709551617"}) {
    EXPECT_THAT(refusal({"run", "--shard", shard}), HasSubstr("1 <= I <= N <= 1000000")) << shard;
  }
  EXPECT_EQ(parse({"run", "--shard", "1000000/1000000"}).line->shard_count, 1'000'000u);
}

TEST(CommandLine, AnUnknownWordIsToldTheNearest) {
  EXPECT_THAT(refusal({"ruin"}), HasSubstr("unknown command 'ruin', expected one of"));
  EXPECT_THAT(refusal({"ruin"}), HasSubstr("(nearest: run)"));
  EXPECT_THAT(refusal({"run", "--repaet=2"}),
              AllOf(HasSubstr("run: unknown option --repaet"), HasSubstr("(nearest: --repeat)")));
  EXPECT_THAT(refusal({"prove", "a.toml", "--fromat", "json"}), HasSubstr("(nearest: --format)"));
  EXPECT_THAT(refusal({"run", "--repeat", "--keep"}), HasSubstr("--repeat")) << "no value";
}

TEST(CommandLine, TheVersionIsTheProjectsAndNoError) {
  testing::internal::CaptureStdout();
  const auto parsed = parse({"--version"});
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_FALSE(parsed.line);
  EXPECT_EQ(parsed.exit_code, 0);
  std::ifstream project(KVDRILL_SOURCE_DIR "/CMakeLists.txt");
  std::ostringstream text;
  text << project.rdbuf();
  ASSERT_THAT(said, StartsWith("kvdrill "));
  EXPECT_THAT(text.str(),
              HasSubstr("project(kvdrill VERSION " + said.substr(8, said.find('\n') - 8) + " "));
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
