#include "harness/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;

TEST(Describe, IsWhatTheProgramPrintsWhenAskedTo) {
  EXPECT_EQ(describe("/bin/echo", 60'000).value_or("?"), "--describe\n");
}

TEST(Describe, SaysWhyThereIsNone) {
  const auto missing = describe("/no/such/engine", 60'000);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error(), "cannot start /no/such/engine: No such file or directory");
  const auto failing = describe("/bin/false", 60'000);
  ASSERT_FALSE(failing.has_value());
  EXPECT_THAT(failing.error(), HasSubstr("/bin/false ended with exit code 1"));
}

}  // namespace
}  // namespace kv::drill
