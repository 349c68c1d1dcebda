#include "harness/drill/pause.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "harness/base/json.h"
#include "harness/report/report.h"

namespace kv::drill {
namespace {

constexpr const char* kKey = "paused";

}  // namespace

std::string to_line(const Pause& pause) {
  return dump_json({{kKey, pause.at},
                    {"thread", pause.thread},
                    {"pid", pause.pid},
                    {"tid", pause.tid},
                    {"folder", pause.folder}});
}

std::optional<Pause> pause_from_line(std::string_view line) {
  const Json json = try_parse_json(line);
  if (!json.is_object() || !json.contains(kKey)) return std::nullopt;
  return Pause{json.value(kKey, ""), json.value("thread", ""), json.value("pid", 0),
               json.value("tid", 0), json.value("folder", "")};
}

std::string pause_text(const Pause& pause, bool restricted) {
  // gdb attaches to processes: that very thread is chosen once it is there.
  std::string text = fmt::format(
      "paused at {}: {}, process {}, thread {}\n"
      "  debugger: {}gdb -p {} -ex 'python [t.switch() for t in gdb.selected_inferior().threads() "
      "if t.ptid[1] == {}]' -ex bt\n",
      one_line(pause.at), one_line(pause.thread), pause.pid, pause.tid, restricted ? "sudo " : "",
      pause.pid, pause.tid);
  text += fmt::format("  folder:   {}\n  Enter lets it go on; no time limit holds meanwhile. ",
                      one_line(pause.folder));
  return text;
}

bool attaching_is_restricted() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return scope > 0 && ::geteuid() != 0;
}

}  // namespace kv::drill
