// kvdrill prove.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/surroundings.h"
#include "harness/cli/commands.h"
#include "harness/cli/commands_internal.h"
#include "harness/report/progress.h"
#include "harness/report/report.h"
#include "harness/report/report_folder.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;

bool holds_scenarios(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".toml" || !entry->is_regular_file(error)) continue;
    std::ifstream file(entry->path());
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("[drill]")) return true;
    }
  }
  return false;
}

// Folders of scenarios lie beside it: it is one subject of a suite.
bool is_part_of_a_suite(const std::string& folder) {
  std::error_code error;
  const fs::path own = fs::canonical(folder, error);
  if (error || !own.has_parent_path()) return false;
  for (fs::directory_iterator entry(own.parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path() == own || !entry->is_directory(error)) continue;
    if (holds_scenarios(entry->path())) return true;
  }
  return false;
}

class ProveCommand {
 public:
  ProveCommand(const Suite& suite, const CommandLine& line) : suite_(suite), line_(line) {}

  int go() {
    for (const Drill* drill : choose(suite_, line_)) {
      if (!drill->proofs.empty()) plan(*drill);
    }
    if (proofs_.empty()) {
      complain("no proof in the files chosen" +
               (line_.filter.empty() ? "" : fmt::format(" by --filter '{}'", line_.filter)));
      return 2;
    }
    progress_.emplace(text() && surroundings_.progress, jobs_.size());
    RunWatch watch;
    watch.done = [this](std::size_t index, DrillResult r) {
      take(jobs_[index], proof_of_[index], std::move(r));
      return true;
    };
    watch.started = [this](std::size_t index) {
      progress_->started(index, name_of(jobs_[index]), watch_.ns());
    };
    watch.ended = [this](std::size_t index) { progress_->ended(index, watch_.ns()); };
    if (surroundings_.progress) watch.tick = [this] { progress_->show(watch_.ns()); };
    const RunEnd end = run_jobs(jobs_, parallel(line_), watch);
    return finish(end);
  }

 private:
  bool text() const { return line_.format == "text"; }

  static std::string name_of(const Job& job) {
    if (job.proof == nullptr) return job.drill->full_name();
    std::string name = job.drill->full_name() + " without";
    for (const Address& step : job.proof->skip) name += " " + to_string(step);
    return name;
  }

  static constexpr std::size_t kWhole = ~std::size_t{0};

  // The drill with everything in place comes first: what fails there proves nothing when it fails
  // without a protection too.
  void plan(const Drill& drill) {
    jobs_.push_back(make_job(suite_, line_, drill, nullptr));
    proof_of_.push_back(kWhole);
    for (const Proof& proof : drill.proofs) {
      proofs_.push_back({});
      std::string reason = reason_to_skip(suite_, drill, &proof);
      left_.push_back(reason.empty() ? line_.repeat : 0);
      if (!reason.empty()) {
        proofs_.back() = judge(drill, proof, skipped(drill, std::move(reason)));
        continue;
      }
      for (std::uint64_t i = 0; i < line_.repeat; ++i) {
        jobs_.push_back(make_job(suite_, line_, drill, &proof));
        proof_of_.push_back(proofs_.size() - 1);
      }
    }
  }

  void take(const Job& job, std::size_t which, DrillResult result) {
    if (which == kWhole) {
      apply_expectation(*job.drill, &result);
      whole_ = std::move(result);
      return;
    }
    ProofResult proof = judge(*job.drill, *job.proof, result);
    if (whole_.verdict == Verdict::kSkip) {
      proof.verdict = Verdict::kSkip;
      proof.why = fmt::format("the drill is not judged in full: {}", first_reason(whole_));
    } else if (whole_.verdict != Verdict::kPass) {
      proof.verdict = std::max(proof.verdict, Verdict::kVoid);
      proof.why = fmt::format("the drill does not pass with the protection either: {}",
                              first_reason(whole_));
    }
    if (proof.verdict > Verdict::kSkip) progress_->failed();
    add(&proofs_[which], std::move(proof), left_[which] == line_.repeat);
    --left_[which];
    print_finished();
  }

  // The repeats of a proof as one result: the worst one's, and how many there were.
  static void add(ProofResult* all, ProofResult proof, bool first) {
    const std::uint64_t runs = first ? 1 : all->runs + 1;
    const std::uint64_t missed =
        (first ? 0 : all->missed) + (proof.verdict > Verdict::kSkip ? 1 : 0);
    if (first || proof.verdict > all->verdict) *all = std::move(proof);
    all->runs = runs;
    all->missed = missed;
  }

  static std::string first_reason(const DrillResult& result) {
    for (const CheckResult& check : result.checks) {
      if (check.verdict > Verdict::kNotJudged) return fmt::format("{}: {}", check.name, check.why);
    }
    return std::string(verdict_name(result.verdict));
  }

  // A filter, a single file or a folder beside others is a part of a suite, and a part cannot say
  // what the whole of it does not catch.
  bool judges_survivors(RunEnd end) const {
    if (!line_.filter.empty() || end != RunEnd::kAll) return false;
    return std::all_of(line_.paths.begin(), line_.paths.end(), [](const std::string& path) {
      std::error_code error;
      return fs::is_directory(path, error) && !is_part_of_a_suite(path);
    });
  }

  void print_finished() {
    for (; printed_ < proofs_.size() && left_[printed_] == 0; ++printed_) {
      if (!text()) continue;
      progress_->clear();
      fmt::print("{}", proof_lines(proofs_[printed_], surroundings_.color));
    }
    std::fflush(stdout);
  }

  int finish(RunEnd end) {
    print_finished();
    progress_->clear();
    Totals totals;
    std::vector<ProofResult> finished;
    for (std::size_t i = 0; i < proofs_.size(); ++i) {
      if (left_[i] != 0) continue;
      totals.add(proofs_[i].verdict);
      finished.push_back(proofs_[i]);
    }
    if (surroundings_.annotations) {
      for (const ProofResult& proof : finished) print_annotations(annotation(proof), text());
    }
    std::optional<std::vector<std::string>> left;
    if (judges_survivors(end)) left = surviving(suite_.engine, finished);
    if (text()) {
      for (const std::string& step : left.value_or(std::vector<std::string>())) {
        fmt::print("  surviving: no proof catches a run without {}\n", step);
      }
      fmt::print("{}, {}, {}\n{}", counted(suite_.engine.steps.size(), "step"),
                 counted(finished.size(), "proof"),
                 left ? fmt::format("{} surviving", left->size())
                      : "surviving steps not judged (a part of the suite)",
                 last_line(totals, watch_.ns()));
    } else {
      fmt::print("{}", prove_json(finished, suite_.engine.steps.size(), left));
    }
    if (end == RunEnd::kInterrupted) return kExitInterrupted;
    if (!write_page(finished)) return 4;
    if (totals.exit_code() == 0 && left && !left->empty()) return 1;
    return totals.exit_code();
  }

  bool write_page(const std::vector<ProofResult>& finished) const {
    if (line_.report_folder.empty()) return true;
    std::vector<std::string> notes;
    std::string why;
    const ProofsPart part{part_origin("kvdrill prove", watch_.ns()), finished};
    const bool written = report_proofs(line_.report_folder, part, &notes, &why);
    if (!written) complain(why);
    for (const std::string& note : notes) complain(note);
    return written;
  }

  const Suite& suite_;
  const CommandLine& line_;
  const Surroundings surroundings_ = look_around();
  std::optional<Progress> progress_;
  Stopwatch watch_;
  std::vector<Job> jobs_;
  std::vector<std::size_t> proof_of_;  // by job; kWhole: the drill without a skip
  DrillResult whole_;                  // of the drill whose proofs are being taken
  std::vector<ProofResult> proofs_;
  std::vector<std::uint64_t> left_;  // runs of each that are not in yet
  std::size_t printed_ = 0;
};

}  // namespace

int prove_command(const Suite& suite, const CommandLine& line) {
  return ProveCommand(suite, line).go();
}

}  // namespace kv::drill
