#include "harness/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

DrillResult failed_run() {
  DrillResult result;
  result.name = "stalled header / <arm> & \"more\"";
  result.file = "scenarios/a.toml";
  result.verdict = Verdict::kFail;
  result.ms = 12;
  result.ns = 12'345'678;
  result.checks = {{"no_crash", Verdict::kPass, "", {}},
                   {"cut off", Verdict::kFail, "no end\nof it", {"scenarios/a.toml", 9, 3}}};
  result.processes = {{"worker", -1, 11, "SIGSEGV"}, {"reader", 0, 0, ""}};
  result.repeat = "kvdrill run scenarios/a.toml";
  result.folder = "/tmp/kvdrill.x";
  return result;
}

PageInput page_of(const DrillResult& result) {
  PageInput input;
  input.drills = DrillsPart{{"kvdrill run", "today", "/home/me", 1}, {result}};
  return input;
}

TEST(Totals, TheWorstDecidesTheExitCode) {
  Totals totals;
  EXPECT_EQ(totals.exit_code(), 0);
  totals.add(Verdict::kSkip);
  totals.add(Verdict::kPass);
  EXPECT_EQ(totals.exit_code(), 0);
  totals.add(Verdict::kVoid);
  EXPECT_EQ(totals.exit_code(), 3);
  totals.add(Verdict::kFail);
  EXPECT_EQ(totals.exit_code(), 1);
  totals.add(Verdict::kError);
  EXPECT_EQ(totals.exit_code(), 4);
  EXPECT_EQ(totals.all(), 5u);
}

TEST(Lines, AFailureSaysWhyWhereAndHowToRepeat) {
  const std::string lines = drill_lines(failed_run(), false);
  EXPECT_THAT(lines, HasSubstr("fail "));
  EXPECT_THAT(lines, HasSubstr("cut off: fail: no end"));
  EXPECT_THAT(lines, HasSubstr("at scenarios/a.toml:9:3"));
  EXPECT_THAT(lines, HasSubstr("repeat: kvdrill run scenarios/a.toml"));
  EXPECT_THAT(lines, HasSubstr("folder: /tmp/kvdrill.x"));
  EXPECT_THAT(lines, Not(HasSubstr("no_crash")));
}

DrillResult repeated() {
  DrillResult result = failed_run();
  result.runs = 200;
  result.failures = 3;
  return result;
}

TEST(Lines, RepeatsAreCounted) {
  EXPECT_THAT(drill_lines(repeated(), false), HasSubstr("passed 197 of 200"));
}

TEST(Lines, NoColorOutsideATerminal) {
  EXPECT_THAT(drill_lines(failed_run(), false), Not(HasSubstr("\x1b")));
  EXPECT_THAT(drill_lines(failed_run(), true), HasSubstr("\x1b["));
}

TEST(Lines, APassHasItsNote) {
  DrillResult result = failed_run();
  result.verdict = Verdict::kPass;
  EXPECT_THAT(drill_lines(result, false), Not(HasSubstr("(")));
  result.note = "fails as expected: x";
  EXPECT_THAT(drill_lines(result, false), HasSubstr("         (fails as expected: x)\n"));
}

TEST(Lines, NothingThatOthersSaidIsAnOrderToATerminalOrToGithub) {
  DrillResult result = failed_run();
  result.name = "a\x1b[2J\nb";
  result.checks = {{"c\x07", Verdict::kFail, "one\n  ::set-env name=x::y\r\x9b", {"f\x1b", 1, 1}}};
  const std::string lines = drill_lines(result, false);
  EXPECT_THAT(lines, HasSubstr("a\\x1b[2J\\x0ab"));
  EXPECT_THAT(lines,
              HasSubstr("c\\x07: fail: one\n           \\x3a:set-env name=x::y\\x0d\\x9b\n"));
  EXPECT_THAT(lines, HasSubstr("at f\\x1b:1:1"));
}

TEST(NotJudged, IsItsOwnWordEverywhereAndNotGreen) {
  DrillResult result = failed_run();
  result.verdict = Verdict::kPass;
  result.checks = {{"no_crash", Verdict::kPass, "", {}},
                   {"prompt_exit", Verdict::kNotJudged, "no note", {}}};
  EXPECT_THAT(drill_lines(result, false), HasSubstr(" ms  1 not judged: prompt_exit\n"));
  const auto json = nlohmann::json::parse(run_json({result}, Totals()));
  EXPECT_EQ(json["scenarios"][0]["verdict"], "pass");
  EXPECT_EQ(json["scenarios"][0]["checks"][1]["verdict"], "not judged");
  const std::string xml = junit({result}, 0);
  EXPECT_THAT(xml, HasSubstr("failures=\"0\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr(": prompt_exit\" file=\"scenarios/a.toml\" time=\"0\"><skipped "
                             "message=\"not judged: no note\"/>"));
  const std::string page = index_html(page_of(result));
  EXPECT_THAT(page, HasSubstr("<span class=\"n judged\">1 not judged: prompt_exit</span>"));
  EXPECT_THAT(page, HasSubstr("<b class=\"not judged\">not judged</b> prompt_exit: no note"));
  EXPECT_THAT(result_to_json(result), HasSubstr("\"not judged\""));
  EXPECT_EQ(not_judged_in(*result_from_json(result_to_json(result))),
            std::vector<std::string>{"prompt_exit"});
}

TEST(Printable, KeepsTextAndShowsEveryOtherByte) {
  EXPECT_EQ(printable("a\tb\n\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "a\tb\n\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");           // a C1 control character
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");           // never; cut short
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a");           // longer than needed
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half a pair
}

TEST(Annotations, EscapeWhatWouldEndThem) {
  DrillResult result = failed_run();
  result.name = "50%, a::b";
  result.checks[1].why = "100%\nof it::x, y";
  result.checks[1].position.file = "a,b:c.toml";
  EXPECT_EQ(annotations(result),
            "::error file=a%2Cb%3Ac.toml,line=9,col=3,title=50%25%2C a%3A%3Ab::cut off: fail: "
            "100%25%0Aof it::x, y\n");
  result.verdict = Verdict::kPass;
  EXPECT_EQ(annotations(result), "");
  ProofResult proof;
  proof.scenario = "s";
  proof.skip = {"a.b"};
  proof.verdict = Verdict::kFail;
  proof.why = "why";
  proof.position = {"f.toml", 3, 1};
  EXPECT_EQ(annotation(proof), "::error file=f.toml,line=3,col=1,title=s without a.b::fail: why\n");
}

TEST(RunJson, HasTheAgreedShape) {
  Totals totals;
  totals.add(Verdict::kFail);
  const auto json = nlohmann::json::parse(run_json({failed_run()}, totals));
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["passed"], 0);
  EXPECT_EQ(json["void"], 0);
  EXPECT_EQ(json["skipped"], 0);
  EXPECT_EQ(json["errors"], 0);
  const auto& run = json["scenarios"][0];
  EXPECT_EQ(run["verdict"], "fail");
  EXPECT_EQ(run["ms"], 12);
  EXPECT_EQ(run["checks"][1]["name"], "cut off");
  EXPECT_EQ(run["checks"][1]["why"], "no end\nof it");
  EXPECT_EQ(run["processes"][0]["signal"], "SIGSEGV");
  EXPECT_TRUE(run["processes"][0]["exit"].is_null());
  EXPECT_EQ(run["processes"][1]["exit"], 0);
  EXPECT_TRUE(run["processes"][1]["signal"].is_null());
}

TEST(RunJson, CountsRepeats) {
  const auto json = nlohmann::json::parse(run_json({repeated()}, Totals()));
  EXPECT_EQ(json["scenarios"][0]["runs"], 200);
  EXPECT_EQ(json["scenarios"][0]["passed_runs"], 197);
}

TEST(Junit, CountsRepeats) {
  EXPECT_THAT(junit({repeated()}, 0), HasSubstr("passed 197 of 200"));
}

TEST(Lines, RepeatsOfAProofAreCounted) {
  ProofResult proof;
  proof.fails = {"c"};
  EXPECT_THAT(proof_lines(proof, false), HasSubstr("fails exactly: c"));
  proof.runs = 100;
  EXPECT_THAT(proof_lines(proof, false), HasSubstr("fails exactly, 100 of 100: c"));
  proof.missed = 1;
  proof.verdict = Verdict::kFail;
  EXPECT_THAT(proof_lines(proof, false), HasSubstr("failed as it says, 99 of 100"));
}

TEST(RunJson, BytesThatAreNotUtf8AreShownNotThrownOn) {
  DrillResult result = failed_run();
  result.checks[1].why = "peer said \xff\xfe";
  EXPECT_TRUE(nlohmann::json::accept(run_json({result}, Totals())));
}

TEST(ProveJson, HasTheAgreedShape) {
  ProofResult proof;
  proof.scenario = "s";
  proof.skip = {"a.b"};
  proof.fails = {"c"};
  const auto json = nlohmann::json::parse(prove_json({proof}, 7, std::vector<std::string>{"x.y"}));
  EXPECT_EQ(json["steps"], 7);
  EXPECT_EQ(json["surviving"][0], "x.y");
  EXPECT_EQ(json["proofs"][0]["skip"][0], "a.b");
  EXPECT_EQ(json["proofs"][0]["verdict"], "pass");
  EXPECT_TRUE(nlohmann::json::parse(prove_json({}, 7, std::nullopt))["surviving"].is_null());
}

TEST(Junit, EscapesAndCountsAVoidRunAsAnError) {
  DrillResult odd = failed_run();
  odd.verdict = Verdict::kVoid;
  const std::string xml = junit({failed_run(), odd}, 1'000'000'000);
  EXPECT_THAT(xml, HasSubstr("tests=\"2\" failures=\"1\" errors=\"1\" skipped=\"0\""));
  EXPECT_THAT(xml, HasSubstr("&lt;arm&gt; &amp; &quot;more&quot;"));
  EXPECT_THAT(xml, HasSubstr("<error type=\"void\""));
  EXPECT_THAT(xml, Not(HasSubstr("<arm>")));
}

TEST(Page, EscapesAndNamesEveryRun) {
  const std::string page = index_html(page_of(failed_run()));
  EXPECT_THAT(page, HasSubstr("&lt;arm&gt;"));
  EXPECT_THAT(page, HasSubstr("not all passed"));
  EXPECT_THAT(page, HasSubstr("cut off"));
  EXPECT_THAT(page, HasSubstr("\"file:///tmp/kvdrill.x/timeline.html\""));
  EXPECT_THAT(page, HasSubstr("\"file:///home/me/scenarios/a.toml\""));
  EXPECT_THAT(page, HasSubstr("Not run for this page yet"));
}

TEST(Page, CountsRepeats) {
  EXPECT_THAT(index_html(page_of(repeated())), HasSubstr("197 of 200 passed"));
}

TEST(Page, LeadsFromADrillToItsProofs) {
  PageInput input = page_of(failed_run());
  ProofResult other, proof;
  other.scenario = "another";
  proof.scenario = failed_run().name;
  proof.skip = {"listener.stop.cancel_reads"};
  input.proofs = ProofsPart{{"kvdrill prove", "today", "/", 1}, {other, proof}};
  const std::string page = index_html(input);
  EXPECT_THAT(page, HasSubstr("href=\"#proof-1\" title=\"without listener.stop.cancel_reads\""));
  EXPECT_THAT(page, Not(HasSubstr("href=\"#proof-0\"")));
  EXPECT_THAT(page, HasSubstr("<tr id=\"proof-1\">"));
}

TEST(Escaped, MarkupAndControlCharactersCannotGetThrough) {
  EXPECT_EQ(escaped(std::string_view("<a b=\"c\">&\x1b\0\n", 13)),
            "&lt;a b=&quot;c&quot;&gt;&amp;??\n");
}

bool anything(std::string_view) {
  return true;
}
bool one(std::string_view text) {
  return text == "one";
}

class WriteFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/kvreport.XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(WriteFile, MakesFoldersAndReplacesWhole) {
  std::string why;
  ASSERT_TRUE(write_file(root_ + "/a/b/c.txt", "one", anything, &why)) << why;
  ASSERT_TRUE(write_file(root_ + "/a/b/c.txt", "two", anything, &why)) << why;
  std::ifstream file(root_ + "/a/b/c.txt");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), "two");
  std::filesystem::remove(root_ + "/a/b/c.txt");
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/a/b"));
}

TEST_F(WriteFile, ReplacesWhatItKnowsAndNothingElse) {
  std::string why;
  for (const char* before : {"", "one"}) {
    std::ofstream(root_ + "/f", std::ios::trunc) << before;
    EXPECT_TRUE(write_file(root_ + "/f", "one", one, &why)) << why;
  }
  std::ofstream(root_ + "/f", std::ios::trunc) << "another";
  std::filesystem::create_symlink("f", root_ + "/link");
  for (const char* name : {"/f", "/link"}) {
    EXPECT_FALSE(write_file(root_ + name, "one", one, &why));
    EXPECT_THAT(why, HasSubstr(root_ + name + " was not written by kvdrill"));
  }
  std::string text;
  std::getline(std::ifstream(root_ + "/f"), text);
  EXPECT_EQ(text, "another");
}

// What it writes first beside the file is nobody's either.
TEST_F(WriteFile, TheFileBesideItIsANewOne) {
  std::string why;
  std::ofstream(root_ + "/other") << "not ours";
  std::filesystem::create_symlink("other", root_ + "/f.0.part");
  EXPECT_TRUE(write_file(root_ + "/f", "one", one, &why)) << why;
  std::string text;
  std::getline(std::ifstream(root_ + "/other"), text);
  EXPECT_EQ(text, "not ours");
  EXPECT_TRUE(std::filesystem::is_symlink(root_ + "/f.0.part"));
}

TEST_F(WriteFile, APipeThatNobodyReadsIsNotWaitedFor) {
  std::string why;
  ASSERT_EQ(::mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(write_file(root_ + "/pipe", "one", one, &why));
  EXPECT_THAT(why, HasSubstr("/pipe: "));
}

TEST_F(WriteFile, FollowsALinkAndLeavesItOne) {
  std::string why;
  ASSERT_TRUE(write_file(root_ + "/real", "before", anything, &why)) << why;
  std::filesystem::create_symlink(root_ + "/real", root_ + "/link");
  ASSERT_TRUE(write_file(root_ + "/link", "through", anything, &why)) << why;
  EXPECT_TRUE(std::filesystem::is_symlink(root_ + "/link"));
  EXPECT_TRUE(std::filesystem::is_regular_file(root_ + "/real"));
}

TEST_F(WriteFile, WhatIsNoRegularFileStaysWhatItIs) {
  std::string why;
  EXPECT_FALSE(write_file("/dev/full", "x", anything, &why));
  EXPECT_THAT(why, HasSubstr("No space left"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(WriteFile, SaysWhyItCannot) {
  std::string why;
  ASSERT_TRUE(write_file(root_ + "/file", "x", anything, &why));
  EXPECT_FALSE(write_file(root_ + "/file/below", "x", anything, &why));
  EXPECT_THAT(why, HasSubstr(root_ + "/file/below"));
}

}  // namespace
}  // namespace kv::drill
