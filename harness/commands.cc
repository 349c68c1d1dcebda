#include "harness/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "harness/report.h"

namespace kv::drill {
namespace {

constexpr int kInterrupted = 130;

int parallel(const CommandLine& line) {
  if (line.jobs > 0) return line.jobs;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

bool color() {
  return ::isatty(STDOUT_FILENO) == 1;
}

class Stopwatch {
 public:
  std::int64_t ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

DrillResult skipped(const Drill& drill, std::string reason) {
  DrillResult result;
  result.name = drill.full_name();
  result.file = drill.position.file;
  result.arm = drill.arm;
  result.verdict = Verdict::kSkip;
  result.checks.push_back({"skip", Verdict::kSkip, std::move(reason), drill.position});
  return result;
}

// A drill that is expected to fail passes by failing, and the other way round: so a server with
// known faults can have the suite, and notices when one of them is mended.
void apply_expectation(const Drill& drill, DrillResult* result) {
  if (drill.expect_fail.empty()) return;
  if (result->verdict == Verdict::kFail) {
    result->verdict = Verdict::kPass;
    for (CheckResult& check : result->checks) {
      if (check.verdict == Verdict::kFail) check.verdict = Verdict::kPass;
    }
  } else if (result->verdict == Verdict::kPass) {
    result->verdict = Verdict::kFail;
    result->checks.push_back(
        {"expect", Verdict::kFail,
         fmt::format("passed, but the file expects it to fail: {}", drill.expect_fail),
         drill.position});
  }
}

// The repeats of one drill as one result: the worst run's with the median time, and how many there
// were.
struct Tally {
  const Drill* drill = nullptr;
  DrillResult worst;
  std::uint64_t runs = 0, failures = 0;
  std::vector<std::int64_t> times_ns;
  void add(DrillResult result) {
    ++runs;
    times_ns.push_back(result.ns);
    if (result.verdict > Verdict::kSkip) ++failures;
    if (runs == 1 || result.verdict > worst.verdict) worst = std::move(result);
  }
  DrillResult result() const {
    DrillResult all = worst;
    std::vector<std::int64_t> sorted = times_ns;
    std::nth_element(sorted.begin(),
                     sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    all.ns = sorted[sorted.size() / 2];
    all.ms = all.ns / 1'000'000;
    return all;
  }
};

class RunCommand {
 public:
  RunCommand(const Suite& suite, const CommandLine& line) : suite_(suite), line_(line) {}

  int go() {
    const std::vector<const Drill*> drills = choose(suite_, line_);
    if (drills.empty() && line_.shard_count > 1) {
      fmt::print("kvdrill: shard {}/{} holds no drill\n", line_.shard_index, line_.shard_count);
      return 0;
    }
    if (drills.empty()) {
      fmt::print(stderr, "kvdrill: no drill matches --filter '{}'; 'kvdrill list' names them all\n",
                 line_.filter);
      return 2;
    }
    for (const Drill* drill : drills) plan(*drill);
    if (text()) header(drills.size());
    const RunEnd end = run_jobs(jobs_, parallel(line_), [this](std::size_t index, DrillResult r) {
      return take(tally_of_[index], std::move(r));
    });
    return finish(end);
  }

 private:
  bool text() const { return line_.format == "text"; }

  void plan(const Drill& drill) {
    tallies_.push_back({});
    tallies_.back().drill = &drill;
    std::string reason = reason_to_skip(drill, nullptr);
    if (!reason.empty()) {
      tallies_.back().add(skipped(drill, std::move(reason)));
      return;
    }
    for (std::uint64_t i = 0; i < line_.repeat; ++i) {
      jobs_.push_back(make_job(suite_, line_, drill, nullptr));
      tally_of_.push_back(tallies_.size() - 1);
    }
  }

  void header(std::size_t drills) const {
    fmt::print("kvdrill: {} drill{} of {} file{} on {}, {}\n", drills, drills == 1 ? "" : "s",
               suite_.scenarios.size(), suite_.scenarios.size() == 1 ? "" : "s",
               suite_.engine.path.substr(suite_.engine.path.rfind('/') + 1),
               suite_.fake_card ? std::string("the fake card") : suite_.driver);
    std::fflush(stdout);
  }

  bool take(std::size_t which, DrillResult result) {
    Tally& tally = tallies_[which];
    apply_expectation(*tally.drill, &result);
    const bool bad = result.verdict > Verdict::kSkip;
    tally.add(std::move(result));
    if (bad) ++failures_;
    print_finished();
    return !(bad && line_.until_fail) && !(line_.max_fail > 0 && failures_ >= line_.max_fail);
  }

  // In the files' order, each as soon as all its repeats are there.
  void print_finished() {
    while (printed_ < tallies_.size()) {
      const Tally& tally = tallies_[printed_];
      const bool whole = tally.runs == line_.repeat || tally.worst.verdict == Verdict::kSkip;
      if (tally.runs == 0 || !whole) return;
      print(tally);
      ++printed_;
    }
  }

  void print(const Tally& tally) {
    if (!text()) return;
    fmt::print("{}", drill_lines(tally.result(), tally.runs, tally.failures, color()));
    std::fflush(stdout);
  }

  int finish(RunEnd end) {
    std::vector<DrillResult> results;
    Totals totals;
    for (std::size_t i = 0; i < tallies_.size(); ++i) {
      Tally& tally = tallies_[i];
      if (tally.runs == 0) continue;
      if (i >= printed_) print(tally);
      totals.add(tally.worst.verdict);
      results.push_back(tally.result());
    }
    const std::int64_t ns = watch_.ns();
    if (text()) {
      if (end == RunEnd::kInterrupted) fmt::print("interrupted\n");
      if (end == RunEnd::kStopped) fmt::print("stopped after {} that did not pass\n", failures_);
      fmt::print("{}", last_line(totals, ns));
    } else {
      fmt::print("{}", run_json(results, totals));
    }
    if (!write_reports(results, ns)) return 4;
    return end == RunEnd::kInterrupted ? kInterrupted : totals.exit_code();
  }

  bool write_reports(const std::vector<DrillResult>& results, std::int64_t ns) const {
    std::string why;
    bool ok = true;
    if (!line_.junit_path.empty() && !write_file(line_.junit_path, junit(results, ns), &why)) {
      fmt::print(stderr, "kvdrill: {}\n", why);
      ok = false;
    }
    if (!line_.report_folder.empty()) {
      PageInput page;
      page.command = "kvdrill run";
      page.results = results;
      page.ns = ns;
      if (!write_file(line_.report_folder + "/index.html", index_html(page), &why)) {
        fmt::print(stderr, "kvdrill: {}\n", why);
        ok = false;
      }
    }
    return ok;
  }

  const Suite& suite_;
  const CommandLine& line_;
  Stopwatch watch_;
  std::vector<Job> jobs_;
  std::vector<std::size_t> tally_of_;  // by job
  std::vector<Tally> tallies_;         // in the order of the drills
  std::size_t printed_ = 0;
  std::uint64_t failures_ = 0;
};

class ProveCommand {
 public:
  ProveCommand(const Suite& suite, const CommandLine& line) : suite_(suite), line_(line) {}

  int go() {
    for (const Drill* drill : choose(suite_, line_)) {
      if (!drill->proofs.empty()) plan(*drill);
    }
    if (proofs_.empty()) {
      fmt::print(stderr, "kvdrill: no proof in the files chosen{}\n",
                 line_.filter.empty() ? "" : fmt::format(" by --filter '{}'", line_.filter));
      return 2;
    }
    const RunEnd end = run_jobs(jobs_, parallel(line_), [this](std::size_t index, DrillResult r) {
      take(jobs_[index], proof_of_[index], r);
      return true;
    });
    return finish(end);
  }

 private:
  bool text() const { return line_.format == "text"; }

  static constexpr std::size_t kWhole = ~std::size_t{0};

  // The drill with everything in place comes first: what fails there proves nothing when it fails
  // without a protection too.
  void plan(const Drill& drill) {
    jobs_.push_back(make_job(suite_, line_, drill, nullptr));
    proof_of_.push_back(kWhole);
    for (const Proof& proof : drill.proofs) {
      proofs_.push_back({});
      std::string reason = reason_to_skip(drill, &proof);
      done_.push_back(!reason.empty());
      if (!reason.empty()) {
        proofs_.back() = judge(drill, proof, skipped(drill, std::move(reason)));
        continue;
      }
      jobs_.push_back(make_job(suite_, line_, drill, &proof));
      proof_of_.push_back(proofs_.size() - 1);
    }
  }

  void take(const Job& job, std::size_t which, DrillResult result) {
    if (which == kWhole) {
      apply_expectation(*job.drill, &result);
      whole_ = std::move(result);
      return;
    }
    ProofResult& proof = proofs_[which];
    proof = judge(*job.drill, *job.proof, result);
    if (whole_.verdict != Verdict::kPass) {
      proof.verdict = std::max(proof.verdict, Verdict::kVoid);
      proof.why = fmt::format("the drill does not pass with the protection either: {}",
                              first_reason(whole_));
    }
    done_[which] = true;
    print_finished();
  }

  static std::string first_reason(const DrillResult& result) {
    for (const CheckResult& check : result.checks) {
      if (check.verdict != Verdict::kPass) return fmt::format("{}: {}", check.name, check.why);
    }
    return std::string(verdict_name(result.verdict));
  }

  // A filter or a single file is a part of a suite, and a part cannot say what the whole of it does
  // not catch; a folder is a suite.
  bool judges_survivors(RunEnd end) const {
    if (!line_.filter.empty() || end != RunEnd::kAll) return false;
    return std::all_of(line_.paths.begin(), line_.paths.end(), [](const std::string& path) {
      std::error_code error;
      return std::filesystem::is_directory(path, error);
    });
  }

  void print_finished() {
    for (; printed_ < proofs_.size() && done_[printed_]; ++printed_) {
      if (text()) fmt::print("{}", proof_lines(proofs_[printed_], color()));
    }
    std::fflush(stdout);
  }

  int finish(RunEnd end) {
    print_finished();
    Totals totals;
    std::vector<ProofResult> finished;
    for (std::size_t i = 0; i < proofs_.size(); ++i) {
      if (!done_[i]) continue;
      totals.add(proofs_[i].verdict);
      finished.push_back(proofs_[i]);
    }
    std::optional<std::vector<std::string>> left;
    if (judges_survivors(end)) left = surviving(suite_.engine, finished);
    if (text()) {
      for (const std::string& step : left.value_or(std::vector<std::string>())) {
        fmt::print("  surviving: no proof catches a run without {}\n", step);
      }
      fmt::print("{} steps, {} proofs, {}\n{}", suite_.engine.steps.size(), finished.size(),
                 left ? fmt::format("{} surviving", left->size())
                      : "surviving steps not judged (a part of the suite)",
                 last_line(totals, watch_.ns()));
    } else {
      fmt::print("{}", prove_json(finished, suite_.engine.steps.size(), left));
    }
    if (end == RunEnd::kInterrupted) return kInterrupted;
    if (!write_page(finished)) return 4;
    if (totals.exit_code() == 0 && left && !left->empty()) return 1;
    return totals.exit_code();
  }

  bool write_page(const std::vector<ProofResult>& finished) const {
    if (line_.report_folder.empty()) return true;
    PageInput page;
    page.command = "kvdrill prove";
    page.proofs = finished;
    page.ns = watch_.ns();
    std::string why;
    if (write_file(line_.report_folder + "/index.html", index_html(page), &why)) return true;
    fmt::print(stderr, "kvdrill: {}\n", why);
    return false;
  }

  const Suite& suite_;
  const CommandLine& line_;
  Stopwatch watch_;
  std::vector<Job> jobs_;
  std::vector<std::size_t> proof_of_;  // by job; kWhole: the drill without a skip
  DrillResult whole_;                  // of the drill whose proofs are being taken
  std::vector<ProofResult> proofs_;
  std::vector<bool> done_;
  std::size_t printed_ = 0;
};

}  // namespace

int run_command(const Suite& suite, const CommandLine& line) {
  return RunCommand(suite, line).go();
}

int prove_command(const Suite& suite, const CommandLine& line) {
  return ProveCommand(suite, line).go();
}

int list_command(const Suite& suite, const CommandLine& line) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::uint64_t drills = 0, proofs = 0;
  for (const Scenario& scenario : suite.scenarios) {
    if (line.format == "text") fmt::print("{}: {}\n", scenario.file, scenario.about);
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
        fmt::print("  {:<60} {:>3} steps {:>2} proofs\n", drill.full_name(), drill.steps.size(),
                   drill.proofs.size());
      }
    }
  }
  if (line.format == "json") {
    fmt::print("{}\n", all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{} drills, {} proofs in {} files\n", drills, proofs, suite.scenarios.size());
  }
  return 0;
}

}  // namespace kv::drill
