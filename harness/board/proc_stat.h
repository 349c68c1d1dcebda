// The beginning of /proc/PID/stat and /proc/PID/task/TID/stat, proc(5).
//
// Threads, ownership: a function of values; the name points into the text.
#ifndef HARNESS_BOARD_PROC_STAT_H_
#define HARNESS_BOARD_PROC_STAT_H_

#include <optional>
#include <string_view>

namespace kv::drill {

struct ProcStat {
  std::string_view name;
  char state = '?';       // R, S, D, T, t, Z, X, I
  std::string_view rest;  // " PARENT GROUP ..."
};

// "ID (NAME) STATE PARENT ..."; the name may hold any byte, also ')'. Nothing: it is not that.
inline std::optional<ProcStat> parse_stat(std::string_view text) {
  const auto begin = text.find('('), end = text.rfind(')');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin ||
      end + 2 >= text.size()) {
    return std::nullopt;
  }
  return ProcStat{text.substr(begin + 1, end - begin - 1), text[end + 2], text.substr(end + 3)};
}

}  // namespace kv::drill

#endif  // HARNESS_BOARD_PROC_STAT_H_
