// Names that a scenario may use instead of numbers: errno values, signals, driver results.
// And the search for the word that was meant.
//
// Threads, ownership: functions and values.
#ifndef HARNESS_SCENARIO_NAMES_H_
#define HARNESS_SCENARIO_NAMES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

// Each gives the number of a name; unset when it is unknown. Case counts.
std::optional<int> errno_by_name(std::string_view name);   // "EPIPE"
std::optional<int> signal_by_name(std::string_view name);  // "TERM" or "SIGTERM"
std::optional<int> result_by_name(std::string_view name);  // "CUDA_ERROR_OUT_OF_MEMORY"

std::string short_signal_name(int signal);  // "KILL"; "42" when it has no name

// All of them, for nearest().
const std::vector<std::string>& errno_names();
const std::vector<std::string>& signal_names();  // without SIG
const std::vector<std::string>& result_names();

// The word of `words` that `word` probably means; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

// "one of a, b, c", "a"; for more than two dozen only their number and the first three.
std::string listed(const std::vector<std::string>& words);
// What was expected and the nearest word: `, expected one of a, b, c (nearest: b)`; of many words
// only their number once one is near.
std::string expected_one(std::string_view word, const std::vector<std::string>& words);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_NAMES_H_
