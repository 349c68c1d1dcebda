#include "harness/report/progress.h"

#include <gtest/gtest.h>

namespace kv::drill {
namespace {

TEST(ProgressText, SaysHowManyAreDoneWhichFailedAndWhichRuns) {
  EXPECT_EQ(progress_text(3, 12, 0, 1'900'000'000, "a drill", 80), "[3/12] 1 s: a drill");
  EXPECT_EQ(progress_text(3, 12, 2, 0, "", 80), "[3/12] 2 failed, 0 s");
}

TEST(ProgressText, StaysInOneLineOfTheTerminal) {
  EXPECT_EQ(progress_text(0, 1, 0, 0, "abcdef", 15), "[0/1] 0 s: abcd");
  EXPECT_EQ(progress_text(0, 1, 0, 0, "\xc3\xa4\xc3\xb6\xc3\xbc", 13),
            "[0/1] 0 s: \xc3\xa4\xc3\xb6");
  EXPECT_EQ(progress_text(0, 1, 0, 0, "a\x1b[2J", 80), "[0/1] 0 s: a\\x1b[2J");
  EXPECT_EQ(progress_text(0, 1, 0, 0, "a\nb", 80), "[0/1] 0 s: a\\x0ab");
}

}  // namespace
}  // namespace kv::drill
