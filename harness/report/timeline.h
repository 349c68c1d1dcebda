// The picture of a run for the person who hunts a race: timeline.html, one page without network, a
// lane for the drill, for each raw client and for each thread. It draws what is held, what took how
// long, deaths, and marks where each failed check became visible.
//
// Threads, ownership: pure functions of values; the input is borrowed for the call.
#ifndef HARNESS_REPORT_TIMELINE_H_
#define HARNESS_REPORT_TIMELINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "harness/board/board.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

struct TimelineInput {
  const DrillResult& result;
  const std::vector<Event>& events;  // in order of sequence; how processes ended is among them
  const std::vector<ProcessInfo>& processes;
  std::int64_t start_ns = 0;  // CLOCK_MONOTONIC; the page's zero
};

// The whole page. Whatever the texts hold, bytes that are not UTF-8 and markup among it, the page
// is well formed and shows it as text.
std::string timeline_html(const TimelineInput& input);

// The events that show a check's failure, the telling one first: those that its reason names, else
// the drill's own event of the failed step, the log line, the death. Empty for a pass, and when the
// record has none.
std::vector<std::uint64_t> moments_of(const CheckResult& check, const std::vector<Event>& events);

}  // namespace kv::drill

#endif  // HARNESS_REPORT_TIMELINE_H_
