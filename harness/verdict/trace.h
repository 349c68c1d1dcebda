// The flight recorder and the plan of a drill as text for people.
//
// Threads, ownership: pure functions of values.
#ifndef HARNESS_VERDICT_TRACE_H_
#define HARNESS_VERDICT_TRACE_H_

#include <string>
#include <string_view>
#include <vector>

#include "harness/board/board.h"
#include "harness/scenario/scenario.h"

namespace kv::drill {

// "point", "note", "log", ...
std::string_view event_kind_name(EventKind kind);

// "worker/listener": process and thread of an event, for people.
std::string who(const Event& event, const std::vector<ProcessInfo>& processes);

// One line an event: milliseconds since `start_ns`, who, what kind, the moment, its value and text.
std::string trace_text(const std::vector<Event>& events, const std::vector<ProcessInfo>& processes,
                       std::int64_t start_ns);

// The first line is `repeat`; then what the drill is, its processes, its steps, `skip` if any.
std::string plan_text(const Drill& drill, const std::string& repeat,
                      const std::vector<Address>& skip);

}  // namespace kv::drill

#endif  // HARNESS_VERDICT_TRACE_H_
