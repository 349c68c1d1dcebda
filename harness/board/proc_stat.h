// The beginning of /proc/PID/stat and /proc/PID/task/TID/stat, proc(5).
//
// Threads, ownership: functions of values; the name points into the text.
#ifndef HARNESS_BOARD_PROC_STAT_H_
#define HARNESS_BOARD_PROC_STAT_H_

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
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

// Its 22nd field: when it started, in clock ticks since boot. With the number, no other process or
// thread of this boot has the same. Empty: the text ends before.
inline std::string_view start_of(const ProcStat& stat) {
  std::string_view rest = stat.rest;
  constexpr int kBefore = 18;  // fields 4 to 21
  for (int i = 0; i <= kBefore; ++i) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (i == kBefore) break;
    rest.remove_prefix(std::min(rest.find(' '), rest.size()));
  }
  return rest.substr(0, rest.find(' '));
}

// The state in such a file; '\0' when it cannot be read: the process or thread is gone.
inline char state_in(const std::string& path) {
  char text[512];
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return '\0';
  const ssize_t length = ::read(fd, text, sizeof text);
  ::close(fd);
  const auto stat = parse_stat({text, length < 0 ? 0 : static_cast<std::size_t>(length)});
  return stat ? stat->state : '\0';
}

}  // namespace kv::drill

#endif  // HARNESS_BOARD_PROC_STAT_H_
