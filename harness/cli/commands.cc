#include "harness/cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "harness/base/json.h"
#include "harness/cli/commands_internal.h"
#include "harness/report/report.h"

namespace kv::drill {

int parallel(const CommandLine& line) {
  if (line.jobs > 0) return line.jobs;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

DrillResult skipped(const Drill& drill, std::string reason) {
  DrillResult result;
  result.name = drill.full_name();
  result.file = drill.position.file;
  result.arm = drill.arm;
  result.verdict = Verdict::kSkip;
  result.checks.push_back({"skip", Verdict::kSkip, std::move(reason), drill.position});
  return result;
}

void apply_expectation(const Drill& drill, DrillResult* result) {
  if (drill.expect_fail.empty()) return;
  if (result->verdict == Verdict::kPass) {
    result->verdict = Verdict::kFail;
    result->checks.push_back(
        {"expect", Verdict::kFail,
         fmt::format("passed, but the file expects it to fail: {}", drill.expect_fail),
         drill.position});
  }
  if (result->verdict != Verdict::kFail) return;
  const auto& processes = result->processes;
  if (std::none_of(processes.begin(), processes.end(),
                   [](const ProcessResult& process) { return process.ready; })) {
    result->verdict = Verdict::kError;
    result->checks.push_back({"expect", Verdict::kError,
                              "no process became ready, so what is expected to fail was not tried",
                              drill.position});
    return;
  }
  for (CheckResult& check : result->checks) {
    if (check.verdict != Verdict::kFail) continue;
    if (check.name == "expect") return;
    check.verdict = Verdict::kPass;
    if (!result->note.empty()) continue;
    result->note =
        fmt::format("fails as expected: {}: {}; {}", check.name, check.why, drill.expect_fail);
  }
  result->verdict = Verdict::kPass;
}

void print_annotations(std::string_view lines, bool text) {
  std::fwrite(lines.data(), 1, lines.size(), text ? stdout : stderr);
}

int no_drill_matches(const CommandLine& line) {
  complain(
      fmt::format("no drill matches --filter '{}'; 'kvdrill list' names them all", line.filter));
  return 2;
}

int list_command(const Suite& suite, const CommandLine& line) {
  Json all = Json::array();
  std::uint64_t drills = 0, proofs = 0, files = 0;
  for (const Scenario& scenario : suite.scenarios) {
    const auto any = [&line](const Drill& drill) { return chosen(line.filter, drill); };
    if (std::none_of(scenario.drills.begin(), scenario.drills.end(), any)) continue;
    ++files;
    if (line.format == "text") {
      fmt::print("{}\n", one_line(fmt::format("{}: {}", scenario.file, scenario.about)));
    }
    for (const Drill& drill : scenario.drills) {
      if (!chosen(line.filter, drill)) continue;
      ++drills;
      proofs += drill.proofs.size();
      if (line.format == "json") {
        all.push_back({{"name", drill.full_name()},
                       {"file", scenario.file},
                       {"cases", scenario.cases},
                       {"steps", drill.steps.size()},
                       {"proofs", drill.proofs.size()}});
      } else {
        fmt::print("  {:<60} {:>3} steps {:>2} proofs\n", one_line(drill.full_name()),
                   drill.steps.size(), drill.proofs.size());
      }
    }
  }
  if (line.format == "json") {
    fmt::print("{}\n", dump_json(all, 1));
  } else {
    fmt::print("{}, {} in {}\n", counted(drills, "drill"), counted(proofs, "proof"),
               counted(files, "file"));
  }
  return 0;
}

}  // namespace kv::drill
