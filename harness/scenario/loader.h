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
                                                             const Engine& engine);

// Every *.toml below each path (a file stands for itself), sorted. An error names what is missing.
tl::expected<std::vector<std::string>, LoadError> find_scenarios(
    const std::vector<std::string>& paths);

// The word of `words` that `word` probably means; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

// "250ms", "5s", "10us", "1h" to nanoseconds; "2MiB", "4KiB", "512" to bytes. Error: what was
// expected.
tl::expected<std::int64_t, std::string> parse_duration(std::string_view text);
tl::expected<std::int64_t, std::string> parse_bytes(std::string_view text);
// "name[key]#hit@process/thread"
tl::expected<Address, std::string> parse_address(std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_LOADER_H_
