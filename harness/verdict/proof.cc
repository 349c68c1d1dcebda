#include "harness/verdict/proof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace kv::drill {
namespace {

std::string quoted(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& name : names) {
    if (!all.empty()) all += ", ";
    all += fmt::format("'{}'", name);
  }
  return all.empty() ? "none" : all;
}

// Why each failed check of the run failed, for a proof that failed others than it named.
std::string reasons(const DrillResult& run, const std::set<std::string>& names) {
  for (const CheckResult& check : run.checks) {
    if (names.count(check.name) != 0 && !check.why.empty()) {
      return fmt::format(" ({}: {})", check.name, check.why);
    }
  }
  return {};
}

}  // namespace

ProofResult judge(const Drill& drill, const Proof& proof, const DrillResult& run) {
  ProofResult result;
  result.scenario = drill.full_name();
  result.file = run.file;
  for (const Address& step : proof.skip) result.skip.push_back(to_string(step));
  result.fails = proof.fails;
  result.position = proof.position;
  result.ms = run.ms;
  result.folder = run.folder;
  result.repeat = run.repeat;

  std::set<std::string> failed;
  std::string unfit;
  Verdict worst = Verdict::kPass;
  for (const CheckResult& check : run.checks) {
    if (check.verdict == Verdict::kNotJudged) continue;
    if (check.verdict == Verdict::kFail) {
      failed.insert(check.name);
    } else if (check.verdict > worst || (check.verdict == worst && unfit.empty())) {
      worst = check.verdict;
      unfit = check.why.empty() ? check.name : check.name + ": " + check.why;
    }
  }
  if (worst != Verdict::kPass || run.verdict == Verdict::kSkip) {
    result.verdict = std::max(worst, run.verdict == Verdict::kSkip ? Verdict::kSkip : worst);
    result.why = unfit;
    return result;
  }
  const std::set<std::string> wanted(proof.fails.begin(), proof.fails.end());
  if (failed == wanted) return result;
  std::set<std::string> missing, extra;
  std::set_difference(wanted.begin(), wanted.end(), failed.begin(), failed.end(),
                      std::inserter(missing, missing.end()));
  std::set_difference(failed.begin(), failed.end(), wanted.begin(), wanted.end(),
                      std::inserter(extra, extra.end()));
  result.verdict = Verdict::kFail;
  if (!missing.empty()) result.why = fmt::format("did not fail: {}", quoted(missing));
  if (!extra.empty()) {
    if (!result.why.empty()) result.why += "; ";
    result.why += fmt::format("failed too: {}{}", quoted(extra), reasons(run, extra));
  }
  return result;
}

std::vector<std::string> surviving(const Engine& engine, const std::vector<ProofResult>& proofs) {
  std::set<std::string> left(engine.steps.begin(), engine.steps.end());
  for (const ProofResult& proof : proofs) {
    // One that this build does not run (a sanitizer's) is no reason to call its step unproven.
    if (proof.verdict != Verdict::kPass && proof.verdict != Verdict::kSkip) continue;
    // An address may name a process, a key or a hit: the step is what stands before them.
    for (const std::string& step : proof.skip)
      left.erase(step.substr(0, step.find_first_of("[#@")));
  }
  return {left.begin(), left.end()};
}

}  // namespace kv::drill
