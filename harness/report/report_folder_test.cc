// The folder of --report: two commands, one page.
#include "harness/report/report_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ReportFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/kvfolder.XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  DrillsPart drills(const std::string& name) {
    DrillsPart part{part_origin("kvdrill run", 5), {}};
    part.results.resize(1);
    part.results[0].name = name;
    part.results[0].file = "a.toml";
    part.results[0].checks = {{"cut off", Verdict::kFail, "no \xff end", {"a.toml", 9, 3}}};
    part.results[0].runs = 7;
    part.results[0].failures = 2;
    return part;
  }
  ProofsPart proofs(const std::string& step) {
    ProofsPart part{part_origin("kvdrill prove", 6), {}};
    part.results.resize(1);
    part.results[0].scenario = "drill";
    part.results[0].skip = {step};
    part.results[0].verdict = Verdict::kVoid;
    part.results[0].runs = 9;
    part.results[0].missed = 1;
    return part;
  }
  std::string page() const {
    std::ostringstream text;
    text << std::ifstream(root_ + "/index.html").rdbuf();
    return text.str();
  }

  std::string root_;
  std::vector<std::string> notes_;
  std::string why_;
};

TEST_F(ReportFolder, EachCommandBringsItsPartUpToDateAndKeepsTheOther) {
  ASSERT_TRUE(report_drills(root_, drills("first"), &notes_, &why_)) << why_;
  EXPECT_THAT(page(), HasSubstr("first"));
  ASSERT_TRUE(report_proofs(root_, proofs("step.one"), &notes_, &why_)) << why_;
  EXPECT_THAT(page(), HasSubstr("first"));
  EXPECT_THAT(page(), HasSubstr("step.one"));
  EXPECT_THAT(page(), HasSubstr("8 of 9 times"));
  ASSERT_TRUE(report_drills(root_, drills("second"), &notes_, &why_)) << why_;
  EXPECT_THAT(page(), HasSubstr("second"));
  EXPECT_THAT(page(), HasSubstr("5 of 7 passed"));
  EXPECT_THAT(page(), Not(HasSubstr("first")));
  EXPECT_THAT(page(), HasSubstr("step.one"));
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(ReportFolder, AKeptPartThatIsNoneIsNamedAndLeftOut) {
  for (const char* text : {"", "[]", "{\"origin\": 1}", "not json"}) {
    std::ofstream(root_ + "/proofs.json") << text;
    notes_.clear();
    ASSERT_TRUE(report_drills(root_, drills("first"), &notes_, &why_)) << why_;
    EXPECT_THAT(notes_, ElementsAre(HasSubstr(root_ + "/proofs.json: left out")));
    EXPECT_THAT(page(), HasSubstr("first"));
  }
}

TEST_F(ReportFolder, ReplacesPartsOfAReportAndNothingElse) {
  EXPECT_EQ(why_no_report(root_ + "/absent", false), "");
  for (const char* text :
       {"[]", "{\"drills\": []}", "not json", "{\"origin\": {\"command\": \"x\"}}"}) {
    std::ofstream(root_ + "/drills.json", std::ios::trunc) << text;
    EXPECT_THAT(why_no_report(root_, false), HasSubstr("drills.json was not written by kvdrill"));
    EXPECT_EQ(why_no_report(root_, true), "") << "the proofs' part and the page are free";
    EXPECT_FALSE(report_drills(root_, drills("first"), &notes_, &why_));
    EXPECT_THAT(why_, HasSubstr("drills.json was not written by kvdrill"));
  }
  std::ofstream(root_ + "/drills.json", std::ios::trunc)
      << R"({"origin": {"command": "kvdrill run"}, "of": "another version"})";
  EXPECT_TRUE(report_drills(root_, drills("first"), &notes_, &why_)) << why_;
  std::ofstream(root_ + "/index.html", std::ios::trunc) << "<title>kvdrill</title>by hand";
  EXPECT_FALSE(report_drills(root_, drills("first"), &notes_, &why_));
  EXPECT_THAT(why_no_report(root_, true), HasSubstr("index.html was not written by kvdrill"));
}

TEST_F(ReportFolder, WaitsForNoPipe) {
  ASSERT_EQ(::mkfifo((root_ + "/proofs.json").c_str(), 0600), 0);
  ASSERT_TRUE(report_drills(root_, drills("first"), &notes_, &why_)) << why_;
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("proofs.json: left out of the page: not a regular")));
  EXPECT_FALSE(report_proofs(root_, proofs("step.one"), &notes_, &why_));
  EXPECT_THAT(why_, HasSubstr("proofs.json: not a regular file"));
}

TEST_F(ReportFolder, SaysWhichFileCannotBeWritten) {
  std::filesystem::create_directory(root_ + "/drills.json");
  EXPECT_FALSE(report_drills(root_, drills("first"), &notes_, &why_));
  EXPECT_THAT(why_, HasSubstr("drills.json"));
}

}  // namespace
}  // namespace kv::drill
