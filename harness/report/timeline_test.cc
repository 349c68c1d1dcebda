#include "harness/report/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TimelineTest : public ::testing::Test {
 protected:
  std::uint64_t add(EventKind kind, std::string_view name, std::int64_t key, std::int64_t value,
                    std::string_view text = {}) {
    Event event;
    event.sequence = events_.size();
    event.time_ns = 1'000 * static_cast<std::int64_t>(events_.size() + 1);
    event.kind = kind;
    event.process = kind == EventKind::kSupervisor ? 0 : 1;
    event.name = name;
    event.key = key;
    event.value = value;
    event.text = text;
    events_.push_back(event);
    return event.sequence;
  }
  void fail(std::string name, std::string why) {
    result_.checks.push_back({std::move(name), Verdict::kFail, std::move(why), {}});
  }
  std::vector<std::uint64_t> moments(std::string why) const {
    return moments_of({"check", Verdict::kFail, std::move(why), {}}, events_);
  }
  std::string page() const { return timeline_html({result_, events_, processes_, 500}); }
  // What the page's script will read.
  nlohmann::json data() const {
    const std::string text = page();
    const std::string open = "id=\"data\">";
    const auto begin = text.find(open) + open.size();
    return nlohmann::json::parse(text.substr(begin, text.find("</script>", begin) - begin));
  }

  DrillResult result_;
  std::vector<Event> events_;
  std::vector<ProcessInfo> processes_ = {{"drill", 0, false, false, false, {}},
                                         {"worker", 10, false, true, false, {{11, "listener"}}}};
};

TEST_F(TimelineTest, AnEventIsThereWithAllItsFields) {
  add(EventKind::kSupervisor, "step", 1, 0, "start worker");
  add(EventKind::kPoint, "vmm.map", 4096, 2);
  const auto all = data();
  ASSERT_EQ(all["events"].size(), 2u);
  const auto& row = all["events"][1];
  EXPECT_EQ(row[0], 1);     // sequence
  EXPECT_EQ(row[1], 1500);  // ns since the start
  EXPECT_EQ(all["kinds"][row[2].get<int>()], "point");
  EXPECT_EQ(all["processes"][row[3].get<int>()]["name"], "worker");
  EXPECT_EQ(all["processes"][1]["threads"][row[4].get<int>()]["label"], "listener");
  EXPECT_EQ(all["names"][row[5].get<int>()], "vmm.map");
  EXPECT_EQ(row[6], 4096);
  EXPECT_EQ(row[7], 2);
  EXPECT_EQ(all["events"][0][8], "start worker");
}

TEST_F(TimelineTest, ATornEventHasItsSequenceOnly) {
  add(EventKind::kNote, "half written", 1, 2, "of it");
  events_[0].torn = true;
  EXPECT_EQ(data()["events"].dump(), "[[0]]");
}

TEST_F(TimelineTest, NoTextCanEndTheDataOrBreakIt) {
  add(EventKind::kLog, "", 2, 0, "</script><!-- <script>alert('x')</script> \xff\xfe \"quoted\"\n");
  result_.name = "</script>";
  const auto all = data();
  EXPECT_EQ(all["drill"], "</script>");
  EXPECT_THAT(all["events"][0][8].get<std::string>(), HasSubstr("\xEF\xBF\xBD"));
  EXPECT_THAT(all["events"][0][8].get<std::string>(), HasSubstr("<script>alert('x')</script>"));
  EXPECT_THAT(page(), Not(HasSubstr("alert('x')</script>")));
}

TEST_F(TimelineTest, NumbersThatAScriptWouldRoundAreText) {
  constexpr std::int64_t kLargest = (std::int64_t{1} << 53) - 1;
  add(EventKind::kNote, "x", kLargest + 1, -kLargest);
  EXPECT_EQ(data()["events"][0][6], "9007199254740992");
  EXPECT_EQ(data()["events"][0][7], -kLargest);
}

TEST_F(TimelineTest, TheNetworkIsNotNeeded) {
  add(EventKind::kNote, "x", 0, 0);
  const std::string text = page();
  for (const char* word : {"http:", "https:", "<link", "src=", "@import", "fetch("}) {
    EXPECT_THAT(text, Not(HasSubstr(word)));
  }
}

TEST_F(TimelineTest, EventsThatAReasonNamesComeInItsOrder) {
  for (int i = 0; i < 60; ++i) add(EventKind::kNote, "x", 0, 0);
  EXPECT_THAT(moments("dispatched 'map' (event 59) after it was cut (event 45)"),
              ElementsAre(59, 45));
  EXPECT_THAT(moments("no such (event 60), no number (event x), cut off (event 5"), IsEmpty());
}

TEST_F(TimelineTest, AFailedStepIsShownWhereTheDrillSawIt) {
  add(EventKind::kSupervisor, "step", 1, 0, "file x is absent");
  add(EventKind::kSupervisor, "failed", 1, 0, "other step: is gone");
  const auto first = add(EventKind::kSupervisor, "failed", 1, 0, "file x is absent: x is there");
  add(EventKind::kSupervisor, "failed", 2, 0, "file x is absent: x is there");
  add(EventKind::kSupervisor, "ended", 10, 0, "worker: exit code 0");
  EXPECT_THAT(moments("x is there"), ElementsAre(first));
  EXPECT_THAT(moments("'file x is absent': x is there"), ElementsAre(first));
}

TEST_F(TimelineTest, ALogLineIsShownWhereItWasWritten) {
  add(EventKind::kLog, "", 0, 0, "not drained");  // informs only
  const auto warning = add(EventKind::kLog, "", 1, 0, "not drained");
  add(EventKind::kSupervisor, "ended", 10, 0, "worker: exit code 0");
  EXPECT_THAT(moments("worker logged a warning: 'not drained', and 2 more"), ElementsAre(warning));
}

TEST_F(TimelineTest, WhatAProcessLeftIsShownAtItsDeathOrElseAtTheLast) {
  const auto worker = add(EventKind::kSupervisor, "ended", 10, 0, "worker: exit code 0");
  const auto other = add(EventKind::kSupervisor, "ended", 11, 0, "work: SIGSEGV");
  EXPECT_THAT(moments("worker ended holding 4 bytes"), ElementsAre(worker));
  EXPECT_THAT(moments("work ended by SIGSEGV"), ElementsAre(other));
  EXPECT_THAT(moments("left below the run: s/x"), ElementsAre(other));
}

TEST_F(TimelineTest, APassAndAnEmptyRecordHaveNoMoment) {
  EXPECT_THAT(moments("left below the run: s/x"), IsEmpty());
  add(EventKind::kSupervisor, "ended", 10, 0, "worker: exit code 0");
  EXPECT_THAT(moments_of({"x", Verdict::kPass, "", {}}, events_), IsEmpty());
  fail("nothing_left", "left below the run: s/x");
  EXPECT_EQ(data()["checks"][0]["moments"].dump(), "[0]");
}

}  // namespace
}  // namespace kv::drill
