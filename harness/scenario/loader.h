// Reads scenario files: TOML to checked, expanded drills, or every fault found, with its place.
//
// Nothing is started for a file that has a fault. A message is one line: what is wrong, what was
// expected, and the nearest word that would have been right.
//
// Threads: functions only. Ownership: values.
#ifndef HARNESS_SCENARIO_LOADER_H_
#define HARNESS_SCENARIO_LOADER_H_

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "harness/scenario/language.h"
#include "harness/scenario/scenario.h"

namespace kv::drill {

struct LoadError {
  Position position;
  std::string message;
};
// "file:line:column: message"
std::string to_string(const LoadError& error);

// The file's own text is given so that tests need no files; `file` is used in positions.
// All faults of a file are returned, in the order of their lines; at least one.
tl::expected<Scenario, std::vector<LoadError>> load_scenario(std::string_view file,
                                                             std::string_view text,
                                                             const Engine& engine,
                                                             const Language& language);

// Every *.toml below each path (a file stands for itself), sorted. An error names what is missing.
tl::expected<std::vector<std::string>, LoadError> find_scenarios(
    const std::vector<std::string>& paths);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_LOADER_H_
