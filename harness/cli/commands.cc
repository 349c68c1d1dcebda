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

namespace {
// A start that the drill made a check by a name, and that failed: that may be what it expects.
bool named_start_failed(const std::vector<Step>& steps, const DrillResult& result) {
  return std::any_of(steps.begin(), steps.end(), [&result](const Step& step) {
    if (named_start_failed(step.body, result)) return true;
    const auto& checks = result.checks;
    return !step.id.empty() && step.deed.carries_all() &&
           std::any_of(checks.begin(), checks.end(), [&step](const CheckResult& check) {
             return check.name == step.id && check.verdict == Verdict::kFail;
           });
  });
}
}  // namespace

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
  const auto dud = std::find_if(processes.begin(), processes.end(),
                                [](const ProcessResult& process) { return !process.ready; });
  if (dud != processes.end() && !named_start_failed(drill.steps, *result)) {
    result->verdict = Verdict::kError;
    result->checks.push_back(
        {"expect", Verdict::kError,
         fmt::format("{} did not become ready, so what is expected to fail was not tried (where "
                     "this is what is expected, its start has an id)",
                     dud->name),
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
