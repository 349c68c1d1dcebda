// Lines that others cause: so many in a window, the rest as a count.
#include "kvcore/base/peer_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kv {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class PeerLogTest : public ::testing::Test {
 protected:
  void flood(int lines, Severity severity = Severity::kWarning) {
    for (int i = 0; i < lines; ++i) log_->say(severity, "line " + std::to_string(i));
  }
  ManualClock clock_;
  std::vector<std::pair<Severity, std::string>> lines_;
  std::unique_ptr<PeerLog> log_ = std::make_unique<PeerLog>(
      clock_,
      [this](Severity severity, std::string_view line) {
        lines_.emplace_back(severity, std::string(line));
      },
      "x: ");
};

TEST_F(PeerLogTest, SaysWhatComesSeldomAsItIs) {
  for (int i = 0; i < 3 * PeerLog::kLines; ++i) {
    log_->say(Severity::kInfo, "seldom");
    EXPECT_EQ(lines_.back().second, "x: seldom");
    clock_.set(clock_.now() + PeerLog::kWindow);
  }
  log_.reset();
  EXPECT_EQ(lines_.size(), std::size_t{3 * PeerLog::kLines});
}

TEST_F(PeerLogTest, CountsAFloodAndTellsTheCountWithTheNextLine) {
  flood(100000);
  ASSERT_EQ(lines_.size(), std::size_t{PeerLog::kLines});
  EXPECT_THAT(lines_.back().second, HasSubstr("only counted"));
  clock_.set(clock_.now() + PeerLog::kWindow);
  flood(1);
  ASSERT_EQ(lines_.size(), std::size_t{PeerLog::kLines + 1});
  EXPECT_EQ(lines_.back().second, "x: line 0 (99990 such lines were left out)");
  log_.reset();
  EXPECT_EQ(lines_.size(), std::size_t{PeerLog::kLines + 1});
}

TEST_F(PeerLogTest, TellsAtTheEndWhatNoLineToldAsTheWorstOfThem) {
  flood(PeerLog::kLines, Severity::kInfo);
  log_->say(Severity::kError, "bad");
  log_->say(Severity::kInfo, "harmless");
  log_.reset();
  EXPECT_EQ(lines_.back(),
            (std::pair(Severity::kError, std::string("x: 2 such lines were left out"))));
}

TEST_F(PeerLogTest, WhatIsQuotedBeginsNoLineOfItsOwn) {
  log_->say(Severity::kInfo, "key \"a\n2026 error: all is lost\x7f\"");
  EXPECT_EQ(lines_.back().second, "x: key \"a?2026 error: all is lost?\"");
}

}  // namespace
}  // namespace kv
