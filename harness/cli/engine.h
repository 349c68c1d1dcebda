// Reads what an engine program says of itself (--describe, see board/kvdrill.h): the words that
// scenarios may use with it.
//
// Threads, ownership: functions and values.
#ifndef HARNESS_CLI_ENGINE_H_
#define HARNESS_CLI_ENGINE_H_

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "harness/scenario/scenario.h"

namespace kv::drill {

// `path` is the program, `text` what it printed. An error says what is missing or wrong, without
// the path. Keys that are not known are left alone, so that later contracts can say more.
tl::expected<Engine, std::string> engine_from_json(const std::string& path, std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_CLI_ENGINE_H_
