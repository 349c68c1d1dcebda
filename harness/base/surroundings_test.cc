#include "harness/base/surroundings.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace kv::drill {
namespace {

Surroundings with(const std::map<std::string, std::string>& environment, bool terminal = true) {
  return surroundings_of(
      [&environment](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
      },
      terminal);
}

TEST(Surroundings, ATerminalHasColoursAndProgressUnlessToldOtherwise) {
  EXPECT_TRUE(with({}).color);
  EXPECT_TRUE(with({}).progress);
  EXPECT_FALSE(with({}, false).color);
  EXPECT_FALSE(with({}, false).progress);
  EXPECT_FALSE(with({{"NO_COLOR", "1"}}).color);
  EXPECT_TRUE(with({{"NO_COLOR", "1"}}).progress);
  EXPECT_FALSE(with({{"CI", "true"}}).progress);
  EXPECT_TRUE(with({{"CI", "true"}}).color);
  EXPECT_FALSE(with({{"TERM", "dumb"}}).color);
  EXPECT_FALSE(with({{"TERM", "dumb"}}).progress);
}

TEST(Surroundings, AnnotationsAreForGithubOnly) {
  EXPECT_FALSE(with({{"CI", "true"}}).annotations);
  EXPECT_TRUE(with({{"GITHUB_ACTIONS", "true"}}, false).annotations);
}

TEST(Surroundings, TheCacheIsWhereTheUserHasIt) {
  EXPECT_EQ(with({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/h"}}).cache_folder, "/c/kvdrill");
  EXPECT_EQ(with({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/h"}}).cache_folder,
            "/h/.cache/kvdrill");
  EXPECT_EQ(with({}).cache_folder, "");
}

}  // namespace
}  // namespace kv::drill
