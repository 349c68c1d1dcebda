// Parameters: the values that an arm may change. "$first" alone takes the parameter's value with
// its type, "a $first b" its text, "$$" is a dollar.
//
// Threads, ownership: functions and values.
#ifndef HARNESS_SCENARIO_SCENARIO_PARAMS_H_
#define HARNESS_SCENARIO_SCENARIO_PARAMS_H_

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "harness/scenario/scenario_fields.h"
#include "harness/scenario/toml_document.h"

namespace kv::drill {

// The values outlive it.
using Parameters = std::map<std::string, const Node*>;

// A copy of `from` with every parameter filled in; `used` gets the names that occurred.
Node substitute(const Node& from, const Parameters& values, std::set<std::string>& used,
                Faults& faults);

// Letters, digits and '_', not beginning with a digit.
bool is_parameter_name(std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_SCENARIO_PARAMS_H_
