#include "harness/report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "harness/base/json.h"
#include "harness/report/web_page.h"
#include "harness/verdict/trace.h"

namespace kv::drill {
namespace {

bool is_drill(const Event& event, std::string_view name) {
  return !event.torn && event.kind == EventKind::kSupervisor && event.name == name;
}

// All N of "(event N)" in the order of the text.
std::vector<std::uint64_t> named_events(std::string_view why) {
  constexpr std::string_view kBefore = "(event ";
  std::vector<std::uint64_t> all;
  for (auto at = why.find(kBefore); at != std::string_view::npos; at = why.find(kBefore, at + 1)) {
    const char* begin = why.data() + at + kBefore.size();
    const char* end = why.data() + why.size();
    std::uint64_t sequence = 0;
    const auto [rest, error] = std::from_chars(begin, end, sequence);
    if (error == std::errc() && rest != end && *rest == ')') all.push_back(sequence);
  }
  return all;
}

// "STEP: WHY" is what the drill records of a failed step; a check's reason is WHY, or 'STEP': WHY.
bool speaks_of(std::string_view recorded, std::string_view why) {
  if (why.empty()) return false;
  if (recorded.ends_with(fmt::format(": {}", why))) return true;
  if (!why.starts_with('\'')) return false;
  const auto colon = recorded.find(": ");
  return colon != std::string_view::npos &&
         why == fmt::format("'{}'{}", recorded.substr(0, colon), recorded.substr(colon));
}

// How well an event shows the failure: 0 not at all.
int telling(const Event& event, std::string_view why) {
  if (event.torn) return 0;
  if (is_drill(event, "failed")) return speaks_of(event.text, why) ? 4 : 0;
  if (event.kind == EventKind::kLog) {
    return event.key > 0 && !event.text.empty() && why.find(event.text) != why.npos ? 3 : 0;
  }
  if (!is_drill(event, "ended")) return 0;
  // "worker: exit code 0"; the last death serves when the reason names no process.
  const auto process = event.text.substr(0, event.text.find(':'));
  const bool named = why.starts_with(process) && why.substr(process.size()).starts_with(' ');
  return named ? 2 : 1;
}

// 2^53: what is larger would be rounded by the page, so it goes as text.
Json number(std::int64_t value) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  if (value > -kExact && value < kExact) return value;
  return std::to_string(value);
}

Json events_of(const TimelineInput& input, Json* names) {
  std::map<std::string_view, std::size_t> known;
  Json rows = Json::array();
  for (const Event& event : input.events) {
    Json row = Json::array({event.sequence});
    if (!event.torn) {
      const auto [at, fresh] = known.try_emplace(event.name, known.size());
      if (fresh) names->push_back(std::string(event.name));
      row.push_back(event.time_ns - input.start_ns);
      row.push_back(static_cast<int>(event.kind));
      row.push_back(event.process);
      row.push_back(event.thread);
      row.push_back(at->second);
      row.push_back(number(event.key));
      row.push_back(number(event.value));
      if (!event.text.empty()) row.push_back(std::string(event.text));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json processes_of(const std::vector<ProcessInfo>& processes) {
  Json all = Json::array();
  for (const ProcessInfo& process : processes) {
    Json threads = Json::array();
    for (const ThreadInfo& thread : process.threads) {
      threads.push_back({{"tid", thread.tid}, {"label", thread.label}});
    }
    all.push_back({{"name", process.name},
                   {"pid", process.pid},
                   {"forked", process.forked},
                   {"threads", std::move(threads)}});
  }
  return all;
}

Json checks_of(const TimelineInput& input) {
  Json all = Json::array();
  for (const CheckResult& check : input.result.checks) {
    const Position& at = check.position;
    all.push_back({{"name", check.name},
                   {"verdict", verdict_name(check.verdict)},
                   {"why", check.why},
                   {"where", at.file.empty() ? "" : fmt::format("{}:{}", at.file, at.line)},
                   {"moments", moments_of(check, input.events)}});
  }
  return all;
}

std::string data_of(const TimelineInput& input) {
  Json kinds = Json::array();
  for (int kind = 0; kind <= static_cast<int>(EventKind::kSupervisor); ++kind) {
    kinds.push_back(event_kind_name(static_cast<EventKind>(kind)));
  }
  Json names = Json::array();
  Json rows = events_of(input, &names);
  const Json all = {{"drill", input.result.name},
                    {"verdict", verdict_name(input.result.verdict)},
                    {"repeat", input.result.repeat},
                    {"checks", checks_of(input)},
                    {"processes", processes_of(input.processes)},
                    {"kinds", std::move(kinds)},
                    {"names", std::move(names)},
                    {"events", std::move(rows)}};
  const std::string text = dump_json(all);
  // In JSON '<' is only ever part of a text. Without it nothing can end the element or open a
  // comment in it.
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::vector<std::uint64_t> moments_of(const CheckResult& check, const std::vector<Event>& events) {
  const bool tells = check.verdict > Verdict::kNotJudged;
  if (!tells || events.empty()) return {};
  auto named = named_events(check.why);
  const std::uint64_t last = events.back().sequence;
  named.erase(std::remove_if(named.begin(), named.end(),
                             [last](std::uint64_t sequence) { return sequence > last; }),
              named.end());
  if (!named.empty()) return named;
  int best = 0;
  std::uint64_t moment = 0;
  for (const Event& event : events) {
    const int score = telling(event, check.why);
    // Of failed steps and log lines the first one tells, of deaths the last.
    if (score > best || (score == best && (score == 1 || score == 2))) {
      best = score;
      moment = event.sequence;
    }
  }
  if (best == 0) return {};
  return {moment};
}

std::string timeline_html(const TimelineInput& input) {
  return web_page("timeline.html", "data",
                  "<script type=\"application/json\" id=\"data\">" + data_of(input) + "</script>");
}

}  // namespace kv::drill
