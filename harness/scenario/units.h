// Values with units, and the syntax of addresses: the small grammars inside a scenario's texts.
//
// Threads, ownership: functions and values.
#ifndef HARNESS_SCENARIO_UNITS_H_
#define HARNESS_SCENARIO_UNITS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "harness/scenario/scenario.h"

namespace kv::drill {

// "00 00 00 05 ff": pairs of hexadecimal digits, with or without spaces between them.
tl::expected<std::string, std::string> parse_hex(std::string_view text);
// "250ms", "5s", "2MiB": the shortest exact form.
std::string show_duration(std::int64_t ns);
std::string show_bytes(std::int64_t bytes);

// The names in braces of a path: "{run}/x" has "run", "{worker.socket}" has "worker.socket".
// Error: a brace without its partner, or nothing between them.
tl::expected<std::vector<std::string>, std::string> template_names(std::string_view path);

// "250ms", "5s", "10us", "1h" to nanoseconds; "2MiB", "4KiB", "512" to bytes. Error: what was
// expected.
tl::expected<std::int64_t, std::string> parse_duration(std::string_view text);
tl::expected<std::int64_t, std::string> parse_bytes(std::string_view text);
// "name[key]#hit@process/thread"
tl::expected<Address, std::string> parse_address(std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_UNITS_H_
