#include "harness/cli/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kWhole = R"({
 "contract": 1, "program": "kvworker", "roles": ["worker"],
 "points": ["listener.reply"], "faults": ["vmm.map", "vmm.copy"],
 "steps": ["listener.stop.drain"], "notes": ["listener.cut"],
 "commands": [{"name": "shutdown", "about": "Stops."}, {"name": "map", "about": ""}],
 "a later key": 3
})";

std::string error_of(const std::string& text) {
  const auto engine = engine_from_json("/bin/x", text);
  return engine ? "no error" : engine.error();
}

std::string replaced(const std::string& what, const std::string& with) {
  std::string text = kWhole;
  text.replace(text.find(what), what.size(), with);
  return text;
}

TEST(EngineTest, ReadsEveryListSortedAndCommandsByName) {
  const auto engine = engine_from_json("/bin/kvworker", kWhole);
  ASSERT_TRUE(engine) << engine.error();
  EXPECT_EQ(engine->path, "/bin/kvworker");
  EXPECT_THAT(engine->roles, ElementsAre("worker"));
  EXPECT_THAT(engine->points, ElementsAre("listener.reply"));
  EXPECT_THAT(engine->faults, ElementsAre("vmm.copy", "vmm.map"));
  EXPECT_THAT(engine->steps, ElementsAre("listener.stop.drain"));
  EXPECT_THAT(engine->notes, ElementsAre("listener.cut"));
  EXPECT_THAT(engine->commands, ElementsAre("map", "shutdown"));
}

TEST(EngineTest, CommandsMayBePlainNames) {
  const auto engine = engine_from_json("x", replaced(R"({"name": "map", "about": ""})", "\"map\""));
  ASSERT_TRUE(engine) << engine.error();
  EXPECT_THAT(engine->commands, ElementsAre("map", "shutdown"));
}

TEST(EngineTest, SaysWhatIsWrongWithADescription) {
  EXPECT_THAT(error_of("usage: x"), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of(""), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("\"contract\" is missing"));
  EXPECT_EQ(error_of(replaced("\"contract\": 1", "\"contract\": 2")), "contract 2, expected 1");
  EXPECT_EQ(error_of(replaced("\"points\"", "\"pints\"")), "\"points\" is missing");
  EXPECT_EQ(error_of(replaced("[\"listener.cut\"]", "3")), "\"notes\" is no list");
  EXPECT_EQ(error_of(replaced("[\"listener.cut\"]", "[3]")), "an entry of \"notes\" has no name");
  EXPECT_EQ(error_of(replaced("{\"name\": \"map\", ", "{")),
            "an entry of \"commands\" has no name");
  EXPECT_EQ(error_of(replaced("[\"worker\"]", "[]")), "\"roles\" is empty");
}

TEST(EngineTest, ANameHasOneKind) {
  EXPECT_EQ(error_of(replaced("\"listener.cut\"", "\"vmm.map\"")),
            "\"vmm.map\" is among faults and notes, expected one kind for a name");
}

}  // namespace
}  // namespace kv::drill
