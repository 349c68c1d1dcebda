// kvdrill run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/surroundings.h"
#include "harness/cli/commands.h"
#include "harness/cli/commands_internal.h"
#include "harness/cli/last_failed.h"
#include "harness/report/progress.h"
#include "harness/report/report.h"
#include "harness/report/report_folder.h"

namespace kv::drill {
namespace {

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
    all.runs = runs;
    all.failures = failures;
    return all;
  }
};

class RunCommand {
 public:
  RunCommand(const Suite& suite, const CommandLine& line) : suite_(suite), line_(line) {}

  int go() {
    if (!remembered()) return 2;
    const std::vector<const Drill*> drills =
        choose(suite_, line_, line_.last_failed ? &failed_before_ : nullptr);
    if (drills.empty()) return no_drill();
    if (line_.pause_at && !find_pause(drills)) return 2;
    for (const Drill* drill : drills) plan(*drill);
    progress_.emplace(text() && surroundings_.progress, jobs_.size());
    if (text()) header(drills.size());
    RunWatch watch;
    watch.done = [this](std::size_t index, DrillResult r) {
      return take(tally_of_[index], std::move(r));
    };
    watch.started = [this](std::size_t index) {
      progress_->started(index, jobs_[index].drill->full_name(), watch_.ns());
    };
    watch.ended = [this](std::size_t index) { progress_->ended(index, watch_.ns()); };
    watch.paused = [this](const Pause& pause) {
      progress_->clear();
      std::fputs(pause_text(pause, attaching_is_restricted()).c_str(), stderr);
    };
    if (surroundings_.progress) watch.tick = [this] { progress_->show(watch_.ns()); };
    return finish(run_jobs(jobs_, parallel(line_), watch));
  }

 private:
  bool text() const { return line_.format == "text"; }

  // False: --last-failed was asked for, and what failed before cannot be told.
  bool remembered() {
    const std::string here = std::filesystem::current_path().string();
    if (!surroundings_.cache_folder.empty()) {
      memory_ = last_failed_path(surroundings_.cache_folder, here);
    } else if (line_.last_failed) {
      complain(
          "--last-failed: nowhere to remember, expected XDG_CACHE_HOME or HOME in the "
          "environment");
      return false;
    }
    if (memory_.empty()) return true;
    auto names = read_last_failed(memory_);
    if (names) failed_before_ = *std::move(names);
    if (!names && line_.last_failed) complain(names.error());
    return names || !line_.last_failed;
  }

  // Those that did not run keep what was known of them.
  void remember() {
    if (memory_.empty()) return;
    std::set<std::string> failed = failed_before_;
    for (const Tally& tally : tallies_) {
      if (tally.runs == 0) continue;
      const std::string name = tally.drill->full_name();
      if (tally.worst.verdict > Verdict::kSkip) failed.insert(name);
      if (tally.worst.verdict == Verdict::kPass) failed.erase(name);
    }
    if (failed == failed_before_) return;
    const std::string here = std::filesystem::current_path().string();
    std::string why;
    if (!write_last_failed(memory_, here, failed, &why)) {
      complain("--last-failed will not know of this run: " + why);
    }
  }

  int no_drill() const {
    if (line_.last_failed && failed_before_.empty()) {
      fmt::print("kvdrill: nothing failed last time\n");
      return 0;
    }
    if (line_.last_failed) {
      fmt::print("kvdrill: nothing chosen here failed last time; elsewhere: {}\n",
                 printable(fmt::format("{}", fmt::join(failed_before_, ", "))));
      return 0;
    }
    if (line_.shard_count > 1) {
      fmt::print("kvdrill: shard {}/{} holds no drill\n", line_.shard_index, line_.shard_count);
      return 0;
    }
    return no_drill_matches(line_);
  }

  // False: it is said what is wrong with --pause-at.
  bool find_pause(const std::vector<const Drill*>& drills) {
    std::string why;
    if (drills.size() > 1 || line_.repeat > 1) {
      why = fmt::format("one run can stand still, not {} of {}; --filter chooses a drill",
                        counted(line_.repeat, "run"), counted(drills.size(), "drill"));
    } else if (auto at = pause_address(suite_, *line_.pause_at, *drills.front())) {
      pause_at_ = *std::move(at);
    } else {
      why = at.error();
    }
    if (!why.empty()) complain("--pause-at: " + why);
    return why.empty();
  }

  void plan(const Drill& drill) {
    tallies_.push_back({});
    tallies_.back().drill = &drill;
    std::string reason = reason_to_skip(suite_, drill, nullptr);
    if (!reason.empty()) {
      tallies_.back().add(skipped(drill, std::move(reason)));
      return;
    }
    for (std::uint64_t i = 0; i < line_.repeat; ++i) {
      jobs_.push_back(make_job(suite_, line_, drill, nullptr));
      jobs_.back().options.pause_at = pause_at_;
      tally_of_.push_back(tallies_.size() - 1);
    }
  }

  void header(std::size_t drills) const {
    fmt::print("kvdrill: {} of {} on {}, {}\n", counted(drills, "drill"),
               counted(suite_.scenarios.size(), "file"),
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
    if (bad) progress_->failed();
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
    progress_->clear();
    fmt::print("{}", drill_lines(tally.result(), surroundings_.color));
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
    progress_->clear();
    remember();
    if (surroundings_.annotations) {
      for (const DrillResult& result : results) print_annotations(annotations(result), text());
    }
    const std::int64_t ns = watch_.ns();
    if (text()) {
      if (end == RunEnd::kInterrupted) fmt::print("interrupted\n");
      if (end == RunEnd::kStopped) fmt::print("stopped after {} that did not pass\n", failures_);
      fmt::print("{}", last_line(totals, ns));
    } else {
      fmt::print("{}", run_json(results, totals, end == RunEnd::kInterrupted));
    }
    if (!write_reports(results, ns)) return 4;
    return end == RunEnd::kInterrupted ? kExitInterrupted : totals.exit_code();
  }

  bool write_reports(const std::vector<DrillResult>& results, std::int64_t ns) const {
    std::string why;
    bool ok = true;
    if (!line_.junit_path.empty() &&
        !write_file(line_.junit_path, junit(results, ns), is_junit, &why)) {
      complain(why);
      ok = false;
    }
    if (!line_.report_folder.empty()) {
      std::vector<std::string> notes;
      const DrillsPart part{part_origin("kvdrill run", ns), results};
      if (!report_drills(line_.report_folder, part, &notes, &why)) {
        complain(why);
        ok = false;
      }
      for (const std::string& note : notes) complain(note);
    }
    return ok;
  }

  const Suite& suite_;
  const CommandLine& line_;
  const Surroundings surroundings_ = look_around();
  std::string memory_;  // the file of what failed before; empty: nowhere
  std::set<std::string> failed_before_;
  std::optional<Progress> progress_;
  std::optional<Address> pause_at_;
  Stopwatch watch_;
  std::vector<Job> jobs_;
  std::vector<std::size_t> tally_of_;  // by job
  std::vector<Tally> tallies_;         // in the order of the drills
  std::size_t printed_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace

int run_command(const Suite& suite, const CommandLine& line) {
  return RunCommand(suite, line).go();
}

}  // namespace kv::drill
