// What a command takes, in words such as "blocks: numbers, group?", and whether it got that.
//
// Threads: functions of their arguments; any thread. Ownership: none.
#ifndef FAKES_WORKER_ARGUMENTS_H_
#define FAKES_WORKER_ARGUMENTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kv::worker {

// `takes`: names, parted by ", ". With "?" behind it an argument may be missing. Behind ": " stands
// its kind: numbers, truth, text, list, table; without one it is a number, whole and of 64 bits.
// Returns what is missing, unknown or of another kind, with what was expected; empty: nothing.
std::string wrong_arguments(const nlohmann::json& arguments, std::string_view takes);

}  // namespace kv::worker

#endif  // FAKES_WORKER_ARGUMENTS_H_
