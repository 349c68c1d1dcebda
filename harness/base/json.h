// JSON, read and written in one place: the library's parser and writer are compiled in json.cc
// alone, since each file that calls them by template takes ten seconds to compile.
//
// Threads, ownership: functions and values.
#ifndef HARNESS_BASE_JSON_H_
#define HARNESS_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kv::drill {

// An object keeps the order in which its members were added.
using Json = nlohmann::ordered_json;

// Throws Json::parse_error, a Json::exception, which says where and what was expected.
Json parse_json(std::string_view text);
// is_discarded() for what is no JSON.
Json try_parse_json(std::string_view text);

// On one line, or with `indent` spaces a level. Bytes that are no UTF-8 become U+FFFD.
std::string dump_json(const Json& json, int indent = -1);

}  // namespace kv::drill

#endif  // HARNESS_BASE_JSON_H_
