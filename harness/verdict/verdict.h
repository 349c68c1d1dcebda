// What a run came to. Plain data: made by the supervisor, read by the reports.
#ifndef HARNESS_VERDICT_VERDICT_H_
#define HARNESS_VERDICT_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "harness/scenario/scenario.h"

namespace kv::drill {

// From best to worst; the worst of its checks is a run's, except that what was not judged takes
// nothing from a pass: the run says how much of it there is.
enum class Verdict : std::uint8_t {
  kPass,
  kNotJudged,  // of a single check, with a reason: nobody looked, so it is not a pass
  kSkip,       // not run, or not judged in full, with a reason
  kVoid,       // the injected fault never fired, or a probe did not answer: not a pass
  kFail,
  kError,  // the harness itself
};
// "pass", "not judged", "skip", "void", "fail", "error"
std::string_view verdict_name(Verdict verdict);
std::optional<Verdict> verdict_by_name(std::string_view name);

struct CheckResult {
  std::string name;
  Verdict verdict = Verdict::kPass;
  std::string why;    // one sentence; empty for a pass
  Position position;  // of the step, if it is one
};

struct ProcessResult {
  std::string name;
  int exit = -1;            // code; -1 when it died by a signal or was not started
  int signal = 0;           // 0 when it exited
  std::string core_signal;  // "SIGSEGV", for people; empty without
  bool ready = true;        // it said so, was never started, or was meant to fail instead
};

struct DrillResult {
  std::string name;  // Drill::full_name()
  std::string file;
  std::string arm;
  Verdict verdict = Verdict::kPass;
  std::int64_t ms = 0;
  std::int64_t ns = 0;
  std::vector<CheckResult> checks;
  std::vector<ProcessResult> processes;
  std::string folder;  // the run folder, if it was kept
  std::string repeat;  // the command that repeats it
  std::string note;    // what a passing run has to say all the same; mostly empty
  // Where the drill was repeated this is the worst of so many runs, and so many did not pass.
  std::uint64_t runs = 1, failures = 0;
};

// A run's verdict, by its checks.
Verdict worst_of(const std::vector<CheckResult>& checks);
// The names of its checks that were not judged.
std::vector<std::string> not_judged_in(const DrillResult& result);

// One line of JSON and back (from supervisor to runner; also verdict.json in the run folder).
std::string result_to_json(const DrillResult& result);
tl::expected<DrillResult, std::string> result_from_json(std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_VERDICT_VERDICT_H_
