#include "fakes/worker/arguments.h"

#include <gtest/gtest.h>

#include <string>

namespace kv::worker {
namespace {

std::string wrong(const char* arguments, std::string_view takes) {
  return wrong_arguments(nlohmann::json::parse(arguments), takes);
}

TEST(Arguments, NothingIsWrongWithWhatIsTaken) {
  EXPECT_EQ(wrong("{}", ""), "");
  EXPECT_EQ(wrong("{}", "group?"), "");
  EXPECT_EQ(wrong(R"({"n": -3, "blocks": [], "shared": true, "budget": "b", "peers": [{}],
                      "request": {}})",
                  "n, blocks: numbers, shared: truth, budget: text, peers: list, request: table, "
                  "group?, low?"),
            "");
}

TEST(Arguments, AMissingOneIsNamedWithAllThatIsTaken) {
  EXPECT_EQ(wrong("{}", "n, group?"), "argument \"n\" is missing, expected {n, group?}");
  EXPECT_EQ(wrong(R"({"group": 1})", "blocks: numbers, group?"),
            "argument \"blocks\" is missing, expected {blocks: numbers, group?}");
}

TEST(Arguments, AnUnknownOneIsNamed) {
  EXPECT_EQ(wrong(R"({"n": 1, "grop": 1})", "n, group?"),
            "unknown argument \"grop\", expected {n, group?}");
  EXPECT_EQ(wrong(R"({"n": 1})", ""), "unknown argument \"n\", expected none");
}

TEST(Arguments, OneOfAnotherKindIsShownWithWhatWasExpected) {
  EXPECT_EQ(wrong(R"({"n": 0.5})", "n"), "n = 0.5, expected a whole number");
  EXPECT_EQ(wrong(R"({"n": "x"})", "n?"), "n = \"x\", expected a whole number");
  EXPECT_EQ(wrong(R"({"n": 9223372036854775808})", "n"),
            "n = 9223372036854775808, expected a whole number");
  EXPECT_EQ(wrong(R"({"b": [1, 2.5]})", "b: numbers"),
            "b = [1,2.5], expected a list of whole numbers");
  EXPECT_EQ(wrong(R"({"b": 1})", "b?: truth"), "b = 1, expected true or false");
  EXPECT_EQ(wrong(R"({"b": 1})", "b: text"), "b = 1, expected a text");
  EXPECT_EQ(wrong(R"({"b": 1})", "b: list"), "b = 1, expected a list");
  EXPECT_EQ(wrong(R"({"b": null})", "b: table"), "b = null, expected a table");
}

}  // namespace
}  // namespace kv::worker
