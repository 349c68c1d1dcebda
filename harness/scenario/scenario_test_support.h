// For the tests of the scenario language: a made-up engine, and files around a few lines.
#ifndef HARNESS_SCENARIO_SCENARIO_TEST_SUPPORT_H_
#define HARNESS_SCENARIO_SCENARIO_TEST_SUPPORT_H_

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/loader.h"
#include "harness/scenario/scenario.h"
#include "harness/steps/table.h"

namespace kv::drill {

inline Engine test_engine() {
  Engine engine;
  engine.path = "/bin/engine";
  engine.roles = {"producer", "reader", "worker"};
  engine.points = {"listener.accepted",      "listener.frame.complete", "listener.handler.begin",
                   "listener.read.body",     "listener.read.header",    "listener.reply",
                   "listener.stop.draining", "listener.stop.begin"};
  engine.faults = {"vmm.create", "vmm.map", "vmm.unmap"};
  engine.steps = {"listener.stop.cancel_reads", "listener.stop.drain", "runtime.exit_hook"};
  engine.notes = {"listener.cut", "listener.dispatch", "listener.handler.end",
                  "listener.stop.return"};
  engine.commands = {"initialised", "map", "shutdown"};
  return engine;
}

// The faults of a file as "line:column: message"; none when it loads.
inline std::vector<std::string> faults_of(std::string_view text) {
  std::vector<std::string> lines;
  const auto loaded = load_scenario("x.toml", text, test_engine(), language());
  if (loaded) return lines;
  for (const LoadError& error : loaded.error()) {
    EXPECT_EQ(error.position.file, "x.toml");
    lines.push_back(to_string(error).substr(std::string_view("x.toml:").size()));
  }
  EXPECT_FALSE(lines.empty());
  return lines;
}

// A loaded file; a test that calls it expects no fault.
inline Scenario loaded(std::string_view text) {
  auto scenario = load_scenario("x.toml", text, test_engine(), language());
  if (scenario) return *std::move(scenario);
  for (const LoadError& error : scenario.error()) ADD_FAILURE() << to_string(error);
  Scenario nothing;
  nothing.drills.emplace_back();
  return nothing;
}

// One row of a table of wrong inputs.
struct BadInput {
  const char* name;
  std::string text;
  std::vector<std::string> faults;  // all of them: "line:column: message"
};
inline void PrintTo(const BadInput& input, std::ostream* out) {
  *out << input.text;
}
inline std::string name_of(const ::testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

inline constexpr std::string_view kHead =
    "name = \"x\"\n"
    "about = \"y\"\n"
    "[processes]\n"
    "worker = {role = \"worker\"}\n"
    "[drill]\n"
    "steps = [\n";

// `steps` behind kHead and `before`. By appending: g++ 12 finds fault with the sum of temporaries.
inline std::string behind(std::string_view before, std::string_view steps) {
  std::string text(kHead);
  text.append(before).append(steps).append("\n]\n");
  return text;
}
// Whole steps in a file: the first given line is line 7; one that is no step of its own may follow.
inline std::string only(std::string_view steps) {
  return behind("", steps);
}
// Behind {start = "worker"} in line 7: the first given line is line 8.
inline std::string started(std::string_view steps) {
  return behind("{start = \"worker\"},\n", steps);
}
// Behind {client = "c", connect = "worker"} in line 8 as well: the first given line is line 9.
inline std::string connected(std::string_view steps) {
  return behind("{start = \"worker\"},\n{client = \"c\", connect = \"worker\"},\n", steps);
}

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_SCENARIO_TEST_SUPPORT_H_
