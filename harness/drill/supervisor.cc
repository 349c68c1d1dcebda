#include "harness/drill/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "harness/base/files.h"
#include "harness/board/board.h"
#include "harness/drill/executor.h"
#include "harness/drill/executor_situation.h"
#include "harness/drill/machine.h"
#include "harness/drill/run_folder.h"
#include "harness/drill/supervisor_launch.h"
#include "harness/drill/supervisor_record.h"
#include "harness/process/leftovers.h"
#include "harness/process/process.h"
#include "harness/report/timeline.h"
#include "harness/verdict/checks.h"
#include "harness/verdict/trace.h"

namespace kv::drill {
namespace {

// Guards against processes that not even SIGKILL ends; nothing waits for so long otherwise.
constexpr int kKillLimitMs = 10'000;
// Room on the board: most events have no text of their own, and names are kept once.
constexpr std::uint32_t kTextOfAnEvent = 32;

// This process as a supervisor, until a run has left nothing behind: it inherits orphans, is its
// own process group (Ctrl-C goes to the runner alone), learns of its parent's death, and reads
// signals from a descriptor.
class Guard {
 public:
  Guard() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::setpgid(0, 0);
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Guard() {
    // What came while everything was being cleared away has had its answer.
    signalfd_siginfo info{};
    while (::read(fd_, &info, sizeof info) > 0) {
    }
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  sigset_t before_;
};

void kill_what_lives(Situation& situation) {
  for (Instance& instance : situation.instances()) {
    if (!instance.lives()) continue;
    instance.expected.any = true;
    instance.gentle = false;
    instance.child.signal(SIGKILL);
  }
  for (const Instance& instance : situation.instances()) {
    if (!instance.lives()) continue;
    pollfd entry{instance.child.pidfd(), POLLIN, 0};
    while (::poll(&entry, 1, kKillLimitMs) < 0 && errno == EINTR) {
    }
  }
  situation.take_in();
}

class Run {
 public:
  Run(const Drill& drill, const RunOptions& options, const RunFolder& folder, int lifeline,
      int signals)
      : drill_(drill),
        options_(options),
        folder_(folder),
        board_(board_options(drill)),
        default_before_(default_places(names_of(drill, folder))),
        situation_(board_, lifeline, signals, !options.fake_card),
        executor_(drill, options, folder, situation_) {}

  // Everything up to the verdict. False: interrupted, there is none.
  bool go(DrillResult* result) {
    folder_.write("plan.txt", plan_text(drill_, options_.repeat, options_.skip));
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      own_files_.insert(entry.path().filename());
    }
    executor_.run();
    Findings& findings = executor_.findings();
    if (!findings.interrupted && !findings.cut_at) executor_.end_gently();
    kill_what_lives(situation_);
    const auto orphans = end_orphans();
    for (Instance& instance : situation_.instances()) {
      tell_cut(instance.name() + "'s standard output", &instance.out, result);
      tell_cut(instance.name() + "'s standard error", &instance.err, result);
    }
    if (findings.interrupted) return remove_placed();
    executor_.judge_orders();
    const Record record = make_record(
        {drill_, options_, folder_, situation_, executor_, own_files_, default_before_}, orphans);
    remove_placed();
    result->checks = std::move(findings.checks);
    judge(record, findings, result);
    for (const Instance& instance : situation_.instances()) add_process(instance, result);
    return true;
  }

  void write_trace(std::int64_t start_ns, const DrillResult& result) const {
    const Moments& moments = situation_.moments();
    folder_.write("trace.txt", trace_text(moments.events(), moments.processes(), start_ns));
    folder_.write("timeline.html",
                  timeline_html({result, moments.events(), moments.processes(), start_ns}));
  }

 private:
  static Board::Options board_options(const Drill& drill) {
    Board::Options options;
    options.events = drill.events;
    options.text_bytes = std::max(options.text_bytes, drill.events * kTextOfAnEvent);
    options.manual_clock = drill.manual_clock;
    options.ready_waits = true;
    return options;
  }

  // Completes the file; what it does not hold is said.
  void tell_cut(const std::string& whose, Output* output, DrillResult* result) {
    output->settle();
    if (output->left_out() == 0) return;
    const std::string text = fmt::format("{} was {} bytes, of which {} in the middle are not kept",
                                         whose, output->written(), output->left_out());
    board_.record("output", 0, 0, text);
    result->note += (result->note.empty() ? "" : "; ") + text;
  }

  // "pid comm" of each that had to be killed.
  static std::vector<std::string> end_orphans() {
    siginfo_t info{};
    // Orphans become children of this process; without a child there is none, and no need to look.
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 && errno == ECHILD) {
      return {};
    }
    std::vector<std::string> names;
    const auto there = descendants();
    for (const pid_t pid : there) names.push_back(fmt::format("{} {}", pid, process_name(pid)));
    std::vector<pid_t> killed;
    end_descendants(kKillLimitMs, &killed);
    std::vector<std::string> left;
    for (const pid_t pid : killed) {
      const auto found = std::find(there.begin(), there.end(), pid);
      left.push_back(found == there.end() ? std::to_string(pid) : names[found - there.begin()]);
    }
    return left;
  }

  // What the drill itself put outside of its folder; a folder that is not empty stays. Always
  // false.
  bool remove_placed() {
    const auto& placed = executor_.placed();
    for (auto one = placed.rbegin(); one != placed.rend(); ++one) {
      if (!one->path.starts_with(folder_.path() + "/")) ::remove(one->path.c_str());
    }
    return false;
  }

  void judge(const Record& record, const Findings& findings, DrillResult* result) {
    for (CheckResult& check : default_checks(record)) {
      const auto waiver =
          std::find_if(drill_.waived.begin(), drill_.waived.end(),
                       [&check](const Waiver& one) { return one.check == check.name; });
      if (waiver != drill_.waived.end()) {
        check.verdict = Verdict::kNotJudged;
        check.why = fmt::format("waived: {}", waiver->reason);
      }
      result->checks.push_back(std::move(check));
    }
    if (const auto full = board_.overflow()) {
      result->checks.push_back({"recorder", Verdict::kError,
                                *full + "; the drill can be given more by `events`",
                                drill_.position});
    }
    if (std::string why = unlisted(record); !why.empty()) {
      result->checks.push_back({"contract", Verdict::kFail, std::move(why), drill_.position});
    }
    // Whatever the checks say: a drill that did not come to its end has not passed.
    const bool told = std::any_of(
        result->checks.begin(), result->checks.end(),
        [&findings](const CheckResult& check) { return check.name == findings.cut_by.name; });
    if (findings.cut_at && !told && worst_of(result->checks) < Verdict::kFail) {
      result->checks.push_back(findings.cut_by);
    }
    result->verdict = worst_of(result->checks);
  }

  // Points that were reached and cannot be named in any drill.
  static std::string unlisted(const Record& record) {
    std::set<std::string> sites;
    for (const Event& event : record.events) {
      if (event.torn || event.kind != EventKind::kNote || event.name != kUnlistedNote) continue;
      sites.insert(fmt::format("{} in {}", event.text, who(event, record.processes)));
    }
    if (sites.empty()) return {};
    return fmt::format(
        "reached, and not listed by --describe: {}; expected every site in kvdrill_engine.sites or "
        "kvdrill_add_sites()",
        fmt::join(sites, ", "));
  }

  static void add_process(const Instance& instance, DrillResult* result) {
    ProcessResult process;
    process.name = instance.name();
    process.ready = instance.ready || instance.meant_to_fail;
    if (instance.end && instance.end->by_signal) {
      process.signal = instance.end->value;
      process.core_signal = signal_name(instance.end->value);
    } else if (instance.end && !instance.end->unknown) {
      process.exit = instance.end->value;
    }
    result->processes.push_back(std::move(process));
  }

  const Drill& drill_;
  const RunOptions& options_;
  const RunFolder& folder_;
  Board board_;
  const std::map<std::string, FileId> default_before_;
  Situation situation_;
  Executor executor_;
  std::set<std::string> own_files_ = {"stacks.txt"};
};

void broken(DrillResult* result, const Drill& drill, std::string name, std::string why) {
  result->verdict = Verdict::kError;
  result->checks.push_back({std::move(name), Verdict::kError, std::move(why), drill.position});
}

// A passing run is, and so is one of a proof in which just the named checks fail, and a failing one
// of a drill that is expected to fail.
bool as_expected(const DrillResult& result, const Drill& drill, const RunOptions& options) {
  if (!drill.expect_fail.empty()) return result.verdict == Verdict::kFail;
  std::set<std::string> failed;
  for (const CheckResult& check : result.checks) {
    if (check.verdict == Verdict::kFail) failed.insert(check.name);
    if (check.verdict > Verdict::kSkip && check.verdict != Verdict::kFail) return false;
  }
  return failed ==
         std::set<std::string>(options.expected_failures.begin(), options.expected_failures.end());
}

// What is in the place of the folder, or of a part of it, is not what the drill looked at.
void judge_folder(const RunFolder& folder, const Drill& drill, DrillResult* result) {
  const std::string now = folder.where();
  const auto lost = folder.lost();
  std::string why;
  if (now.empty()) {
    why = folder.path() + " was removed by a process of the drill";
  } else if (now != folder.path()) {
    why = fmt::format("{} was moved to {} by a process of the drill", folder.path(), now);
  } else if (!lost.empty()) {
    why = fmt::format("of {}, a process of the drill removed or replaced {}", now,
                      fmt::join(lost, ", "));
  } else {
    return;
  }
  result->checks.push_back({"run folder", Verdict::kFail, std::move(why), drill.position});
  result->verdict = std::max(result->verdict, Verdict::kFail);
}

void run_in(const RunFolder& folder, const Drill& drill, const RunOptions& options, int lifeline,
            int signals, std::int64_t start_ns, DrillResult* result) {
  bool keep = false;
  try {
    auto run = std::make_unique<Run>(drill, options, folder, lifeline, signals);
    if (run->go(result)) {
      judge_folder(folder, drill, result);
      if (!as_expected(*result, drill, options)) {
        if (auto blamed = blame_machine(folder, drill, *result)) {
          result->verdict = Verdict::kError;
          result->checks.push_back(*std::move(blamed));
        }
      }
      keep = options.keep || !as_expected(*result, drill, options);
      result->ns = now_ns() - start_ns;
      if (keep) run->write_trace(start_ns, *result);
    } else {
      broken(result, drill, "interrupted", "the run was interrupted and its processes were ended");
    }
  } catch (const std::exception& error) {
    end_descendants(kKillLimitMs, nullptr);
    broken(result, drill, "supervisor", error.what());
  }
  result->ns = now_ns() - start_ns;
  result->ms = (result->ns + 500'000) / 1'000'000;
  if (keep) {
    result->folder = folder.where();
    folder.write("verdict.json", result_to_json(*result) + "\n");
  } else if (std::string why = folder.remove(); !why.empty()) {
    broken(result, drill, "supervisor", std::move(why));
  }
}

// All descriptors but the standard three and these: a supervisor must not hold the runner's, least
// of all the writing end of its lifeline.
void close_others(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned from = 3;
  for (const int fd : kept) {
    const auto keep = static_cast<unsigned>(fd);
    if (fd < 0 || keep < from) continue;
    if (keep > from) ::close_range(from, keep - 1, 0);
    from = keep + 1;
  }
  ::close_range(from, ~0u, 0);
}

}  // namespace

DrillResult run_drill(const Drill& drill, const RunOptions& options, int lifeline) {
  const std::int64_t start_ns = now_ns();
  DrillResult result;
  result.name = drill.full_name();
  result.file = drill.position.file;
  result.arm = drill.arm;
  result.repeat = options.repeat;
  const Guard guard;
  auto folder = RunFolder::make(options.runs_folder);
  if (!folder) {
    broken(&result, drill, "supervisor", folder.error());
    return result;
  }
  std::string why;
  if (drill.small_root) why = folder->make_small(*drill.small_root);
  if (!why.empty()) {
    result.verdict = Verdict::kSkip;
    result.checks.push_back({"small_root", Verdict::kSkip, std::move(why), drill.position});
    if (why = folder->remove(); !why.empty()) broken(&result, drill, "supervisor", std::move(why));
    return result;
  }
  run_in(*folder, drill, options, lifeline, guard.fd(), start_ns, &result);
  return result;
}

Supervisor fork_drill(const Drill& drill, const RunOptions& options, int lifeline) {
  int ends[2];
  const auto refuse = [](const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  };
  if (::pipe2(ends, O_CLOEXEC) != 0) refuse("a supervisor's pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) {
    const int error = errno;
    ::close(ends[1]);
    if (pid < 0) {
      ::close(ends[0]);
      errno = error;
      refuse("forking a supervisor");
    }
    return {pid, ends[0]};
  }
  ::signal(SIGPIPE, SIG_IGN);
  RunOptions mine = options;
  mine.pause_by.say = ends[1];
  close_others({lifeline, ends[1], mine.pause_by.go});
  // Asks for SIGTERM, not SIGKILL: processes and folders are to be cleared away. A runner that died
  // before this line has sent none.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  const DrillResult result = run_drill(drill, mine, lifeline);
  ::_exit(write_all(ends[1], result_to_json(result) + "\n") ? 0 : 1);
}

}  // namespace kv::drill
