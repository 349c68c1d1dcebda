#include "harness/cli/doctor.h"

#include <fmt/format.h>

#include <cstdio>

#include "harness/base/surroundings.h"
#include "harness/cli/commands.h"
#include "harness/cli/doctor_probes.h"
#include "harness/cli/suite.h"
#include "harness/process/process.h"
#include "harness/report/report.h"

namespace kv::drill {
namespace {

using Kind = Finding::Kind;

// A probe that says "" was good.
Finding needed(const char* what, const std::string& why, const char* found, const char* cost) {
  if (why.empty()) return {Kind::kFine, what, found, {}};
  return {Kind::kLacks, what, why, cost};
}
Finding useful(const char* what, const std::string& why, const char* found, const char* cost) {
  Finding finding = needed(what, why, found, cost);
  if (finding.kind == Kind::kLacks) finding.kind = Kind::kCosts;
  return finding;
}

Finding at_least(const char* what, std::uint64_t value, std::uint64_t enough, std::uint64_t needed,
                 const char* cost) {
  const std::string found = value == ~std::uint64_t{0} ? "no limit" : std::to_string(value);
  if (value >= enough) return {Kind::kFine, what, found, {}};
  return {value < needed ? Kind::kLacks : Kind::kCosts, what,
          fmt::format("{}, expected {} or more", found, value < needed ? needed : enough), cost};
}

void add_needed(const std::string& runs_folder, std::vector<Finding>* all) {
  all->push_back(needed("/proc", wrong_proc(), "it is of this pid namespace",
                        "threads and children cannot be looked at: no command works"));
  all->push_back(needed("pidfd", probe_pidfd(), "processes are watched by descriptor",
                        "no process can be watched without taking a stranger for it"));
  all->push_back(needed("subreaper", probe_subreaper(), "orphans are inherited",
                        "what an engine leaves running cannot be found and ended"));
  all->push_back(needed("memfd", probe_memfd(), "the board can be made",
                        "points, orders and the recorder have no place"));
  all->push_back(needed("signalfd, eventfd", probe_descriptors(), "waits end by descriptors",
                        "the supervisor cannot be woken"));
  all->push_back(needed("run folder", probe_runs_folder(runs_folder),
                        "sockets can be bound and space is left", "runs have no place"));
  all->push_back(needed("OFD locks", probe_locks(runs_folder), "owners of the card are told alive",
                        "the fake card cannot tell who lives"));
  all->push_back(needed("fake card", why_not_loadable(own_folder() + "/card/libcuda.so.1"),
                        "its library can be loaded", "only --card cuda and --driver can be used"));
  all->push_back(at_least("open files", limit_of_files(), 1024, 64,
                          "drills with many processes and clients end in 'too many open files'"));
  all->push_back(at_least("processes", limit_of_processes(), 1024, 16,
                          "drills side by side may be refused processes: use -j 1"));
}

void add_useful(std::vector<Finding>* all) {
  all->push_back(at_least("mappings", number_in("/proc/sys/vm/max_map_count"), 65530, 1024,
                          "a fake card with many scattered pages meets the limit earlier "
                          "(vm.max_map_count)"));
  all->push_back(useful("/dev/shm", probe_shared_memory(), "segments can be made there",
                        "engines that ignore --segment-root cannot make their segments"));
  all->push_back(useful("ptrace", probe_ptrace(), "a debugger can attach to any own process",
                        "gdb can attach to a drill's process as root only, or with "
                        "kernel.yama.ptrace_scope = 0"));
  all->push_back(useful("core files", probe_cores(), "a crash can leave one",
                        "a crash leaves its backtrace in the report, but no core file"));
  all->push_back(useful("addr2line", probe_addr2line(), "backtraces have files and lines",
                        "backtraces have functions and offsets only (package binutils)"));
  all->push_back(useful("libcuda", why_not_loadable("libcuda.so.1"), "--card cuda can be tried",
                        "--card cuda cannot be used; the fake card can"));
  const std::uint64_t bits = number_in("/proc/sys/vm/mmap_rnd_bits");
  all->push_back(useful("mmap randomness",
                        bits > 28 && bits < 64 ? fmt::format("{} bits", bits) : "",
                        "28 bits or fewer",
                        "programs built with thread sanitizers of g++ 12 and clang 14 end at their "
                        "start, except under setarch -R"));
}

}  // namespace

std::vector<Finding> examine(const std::string& runs_folder) {
  std::vector<Finding> all;
  add_needed(runs_folder, &all);
  add_useful(&all);
  return all;
}

bool can_run(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    if (finding.kind == Kind::kLacks) return false;
  }
  return true;
}

std::string findings_text(const std::vector<Finding>& findings, bool color) {
  struct Word {
    const char* text;
    int color;
  };
  constexpr Word kWords[] = {{"ok", 32}, {"costs", 33}, {"lacks", 31}};
  std::string out;
  for (const Finding& finding : findings) {
    const Word& word = kWords[static_cast<int>(finding.kind)];
    const std::string text = color ? fmt::format("\x1b[{}m{:<5}\x1b[0m", word.color, word.text)
                                   : fmt::format("{:<5}", word.text);
    out += fmt::format("  {}  {:<18} {}\n", text, finding.what, printable(finding.found));
    if (!finding.cost.empty()) out += fmt::format("         {}\n", finding.cost);
  }
  return out + (can_run(findings) ? "drills can run here\n" : "drills cannot run here\n");
}

int doctor_command(const CommandLine& line) {
  const auto findings = examine(line.runs_folder);
  fmt::print("{}", findings_text(findings, look_around().color));
  return can_run(findings) ? 0 : 1;
}

}  // namespace kv::drill
