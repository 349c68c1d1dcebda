#include "harness/cli/suite.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <utility>

#include "harness/base/files.h"
#include "harness/board/kvdrill.h"
#include "harness/cli/engine.h"
#include "harness/drill/run_folder.h"
#include "harness/drill/supervisor_launch.h"
#include "harness/process/card_ledger.h"
#include "harness/process/describe.h"
#include "harness/process/process.h"
#include "harness/report/report.h"
#include "harness/report/report_folder.h"
#include "harness/scenario/loader.h"
#include "harness/scenario/names.h"
#include "harness/scenario/step_reader.h"
#include "harness/scenario/units.h"
#include "harness/steps/table.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;

constexpr int kDescribeLimitMs = 10'000;
constexpr int kInterrupted = 130;
constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of a scenario file

// A path as one would type it in a shell.
std::string shell_word(const std::string& word) {
  if (!word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789_-./=:,+@%") == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Escapes what a pattern would take for its own, so that --filter names just this drill.
std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// All that decides what a run does; from whatever folder it is repeated.
std::string options_to_repeat(const CommandLine& line) {
  std::string options;
  if (!line.engine.empty()) options += " --engine " + shell_word(plain_path(line.engine));
  if (!line.driver.empty()) options += " --driver " + shell_word(plain_path(line.driver));
  if (line.card != CommandLine().card) options += " --card " + line.card;
  if (line.runs_folder != CommandLine().runs_folder) {
    options += " --runs " + shell_word(plain_path(line.runs_folder));
  }
  return options;
}

tl::expected<Engine, SuiteError> describe_engine(const std::string& program) {
  if (::access(program.c_str(), X_OK) != 0) {
    return tl::unexpected(SuiteError{
        {fmt::format("kvdrill: engine {}: not a program that can be started", program)}, 2});
  }
  auto text = describe(program, kDescribeLimitMs, inherited_environment());
  if (!text) {
    return tl::unexpected(
        SuiteError{{fmt::format("kvdrill: engine {} --describe: {}", program, text.error().why)},
                   text.error().interrupted ? kInterrupted : 4});
  }
  auto engine = engine_from_json(program, *text);
  if (!engine) {
    return tl::unexpected(
        SuiteError{{fmt::format("kvdrill: engine {} --describe: {}", program, engine.error())}, 4});
  }
  return *std::move(engine);
}

// What `body` returns (and writes to the descriptor that it gets) in a process of its own, and how
// that process ended.
template <typename Body>
std::pair<std::string, int> said_by_child(const Body& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {"cannot make a pipe", 0};
  std::fflush(stdout);  // else the child's exit, or its own flush, would write it again
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    const std::string text = body(ends[1]);
    ::_exit(write_all(ends[1], text) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said(pid < 0 ? "cannot start a process" + advice_on_fork(errno) : "");
  char chunk[4096];
  for (ssize_t n = 1; pid > 0 && n != 0;) {
    n = ::read(ends[0], chunk, sizeof chunk);
    if (n > 0) said.append(chunk, static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  int status = 0;
  while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return {std::move(said), status};
}

// The moments that a driver library makes known when it is loaded; a real one has none.
Engine moments_of(const std::string& driver) {
  const auto [text, status] = said_by_child([&driver](int out) {
    void* library = ::dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
    // Only of a library that uses it, as the fake card does.
    void* described = library == nullptr ? nullptr : ::dlsym(library, "kvdrill_described");
    if (described == nullptr || ::dup2(out, STDOUT_FILENO) < 0) return std::string();
    const char* const roles[] = {"driver", nullptr};
    const kvdrill_engine itself{
        KVDRILL_CONTRACT_VERSION, driver.c_str(), roles, nullptr, nullptr, nullptr, 0};
    std::string words[] = {driver, "--describe"};
    char* arguments[] = {words[0].data(), words[1].data(), nullptr};
    reinterpret_cast<decltype(&kvdrill_described)>(described)(2, arguments, &itself);
    return std::string();
  });
  return engine_from_json(driver, text).value_or(Engine());
}

// Adds the moments of a driver to those of the engine; returns the names that were not there.
std::set<std::string> add_moments(const Engine& driver, Engine* engine) {
  std::set<std::string> known;
  std::set<std::string> added;
  constexpr std::array kLists{&Engine::points, &Engine::faults, &Engine::steps, &Engine::notes};
  for (const auto list : kLists) known.insert((engine->*list).begin(), (engine->*list).end());
  for (const auto list : kLists) {
    for (const std::string& name : driver.*list) {
      if (known.insert(name).second) added.insert(name), (engine->*list).push_back(name);
    }
    std::sort((engine->*list).begin(), (engine->*list).end());
  }
  return added;
}

tl::expected<void, SuiteError> load_all(const CommandLine& line, Suite* suite) {
  auto files = find_scenarios(line.paths);
  if (!files) return tl::unexpected(SuiteError{{to_string(files.error())}, 2});
  SuiteError faults;
  for (const std::string& file : *files) {
    auto text = read_file(file, kMostBytes);
    if (!text) {
      faults.lines.push_back(fmt::format("{}: {}", file, text.error()));
      continue;
    }
    auto scenario = load_scenario(file, *text, suite->engine, language());
    if (!scenario) {
      for (const LoadError& error : scenario.error()) faults.lines.push_back(to_string(error));
      continue;
    }
    for (const Scenario& other : suite->scenarios) {
      if (other.name == scenario->name) {
        faults.lines.push_back(
            fmt::format("{}:1:1: the name '{}' is taken by {}, expected a name of its own", file,
                        scenario->name, other.file));
      }
    }
    for (const Drill& drill : scenario->drills) suite->proofs += drill.proofs.size();
    suite->scenarios.push_back(*std::move(scenario));
  }
  if (!faults.lines.empty()) return tl::unexpected(std::move(faults));
  return {};
}

}  // namespace

tl::expected<Suite, SuiteError> open_suite(const CommandLine& line) {
  if (std::string why = wrong_proc(); !why.empty()) {
    return tl::unexpected(SuiteError{{"kvdrill: " + std::move(why)}, 4});
  }
  Suite suite;
  const fs::path here(own_folder());
  const std::string program =
      line.engine.empty() ? (here / "kvworker").string() : plain_path(line.engine);
  auto engine = describe_engine(program);
  if (!engine) return tl::unexpected(std::move(engine.error()));
  suite.engine = *std::move(engine);
  suite.driver = !line.driver.empty()  ? plain_path(line.driver)
                 : line.card == "cuda" ? std::string("libcuda.so.1")
                                       : (here / "card" / "libcuda.so.1").string();
  suite.fake_card = line.driver.empty() ? line.card == "fake" : is_fake_card(suite.driver);
  add_moments(moments_of(suite.driver), &suite.engine);
  suite.not_of_driver =
      add_moments(moments_of((here / "card" / "libcuda.so.1").string()), &suite.engine);
  if (auto loaded = load_all(line, &suite); !loaded)
    return tl::unexpected(std::move(loaded.error()));
  return suite;
}

tl::expected<void, SuiteError> ready_to_run(const Suite& suite, const CommandLine& line) {
  const auto refused = [](std::string text) {
    return tl::unexpected(SuiteError{{"kvdrill: " + std::move(text)}, 2});
  };
  if (std::string why = why_not_loadable(suite.driver); !why.empty()) {
    const std::string what = !line.driver.empty() ? "--driver " + line.driver
                             : suite.fake_card    ? "the fake card " + suite.driver
                                                  : "--card cuda";
    return refused(fmt::format("{}: expected a driver library that can be loaded: {}", what, why));
  }
  // Before the drills take their time, not after it.
  if (std::string why = why_not_replaced(line.junit_path, is_junit); !why.empty()) {
    return refused("--junit " + std::move(why));
  }
  if (!line.report_folder.empty()) {
    std::string why = why_no_report(line.report_folder, line.command == Command::kProve);
    if (!why.empty()) return refused("--report " + std::move(why));
  }
  std::size_t ipc = 0;
  for (const Drill* drill : choose(suite, line)) {
    for (const ProcessSpec& process : drill->processes) ipc = std::max(ipc, process.ipc.size());
  }
  if (std::string why = too_long_for_sockets(plain_path(line.runs_folder), ipc); !why.empty()) {
    return refused("--runs " + std::move(why));
  }
  return {};
}

bool chosen(const std::string& pattern, const Drill& drill) {
  if (pattern.empty()) return true;
  return ::fnmatch(pattern.c_str(), drill.full_name().c_str(), 0) == 0;
}

std::vector<const Drill*> choose(const Suite& suite, const CommandLine& line,
                                 const std::set<std::string>* only) {
  std::vector<const Drill*> drills;
  for (const Scenario& scenario : suite.scenarios) {
    for (const Drill& drill : scenario.drills) {
      if (only != nullptr && only->count(drill.full_name()) == 0) continue;
      if (chosen(line.filter, drill)) drills.push_back(&drill);
    }
  }
  if (line.shuffle) {
    // Written out so that a seed means the same order with every standard library.
    std::mt19937_64 random(*line.shuffle);
    for (std::size_t i = drills.size(); i > 1; --i) std::swap(drills[i - 1], drills[random() % i]);
  }
  if (line.shard_count > 1) {
    std::vector<const Drill*> mine;
    for (std::size_t i = line.shard_index - 1; i < drills.size(); i += line.shard_count) {
      mine.push_back(drills[i]);
    }
    drills = std::move(mine);
  }
  return drills;
}

tl::expected<Address, std::string> pause_address(const Suite& suite, const std::string& text,
                                                 const Drill& drill) {
  auto address = parse_address(text);
  if (!address) return address;
  if (std::string why = why_not_site(suite.engine, address->site, Use::kAct); !why.empty()) {
    return tl::unexpected(std::move(why));
  }
  std::vector<std::string> names;
  for (const ProcessSpec& process : drill.processes) names.push_back(process.name);
  if (!address->process.empty() &&
      std::find(names.begin(), names.end(), address->process) == names.end()) {
    return tl::unexpected(fmt::format("unknown process \"{}\"{}", address->process,
                                      expected_one(address->process, names)));
  }
  return address;
}

Job make_job(const Suite& suite, const CommandLine& line, const Drill& drill, const Proof* proof) {
  Job job;
  job.drill = &drill;
  job.proof = proof;
  RunOptions& options = job.options;
  options.engine = suite.engine.path;
  options.notes = suite.engine.notes;
  options.driver = suite.driver;
  options.fake_card = suite.fake_card;
  options.runs_folder = plain_path(line.runs_folder);
  options.keep = line.keep;
  if (proof != nullptr) {
    options.skip = proof->skip;
    options.expected_failures = proof->fails;
  }
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  options.repeat =
      fmt::format("{} {} {} --filter {}{} --keep", shell_word(self.string()),
                  proof == nullptr ? "run" : "prove", shell_word(plain_path(drill.position.file)),
                  shell_word(pattern_of(drill.full_name())), options_to_repeat(line));
  return job;
}

std::string own_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string(".") : self.parent_path().string();
}

std::string why_not_loadable(const std::string& library) {
  const auto [why, status] = said_by_child([&library](int) {
    if (::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return std::string();
    const char* reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): one thread
    return std::string(reason == nullptr ? "no reason given" : reason);
  });
  if (why.empty() && WIFSIGNALED(status)) {
    return fmt::format("loading it ends in signal {}", WTERMSIG(status));
  }
  return why;
}

std::string reason_to_skip(const Suite& suite, const Drill& drill, const Proof* proof) {
  const Drill usual;
  if (!suite.fake_card &&
      (drill.devices != usual.devices || drill.device_bytes != usual.device_bytes)) {
    return "the file asks for a card of its own size or number, and a real one is as it is";
  }
  for (const std::string& moment : foretold(drill.steps).moments) {
    const std::string name =
        moment.ends_with(".done") ? moment.substr(0, moment.size() - 5) : moment;
    if (!suite.not_of_driver.contains(name)) continue;
    return fmt::format("the file names {}, a moment of the fake card, which this driver has not",
                       name);
  }
  return reason_to_skip(drill, proof);
}

std::string reason_to_skip(const Drill& drill, const Proof* proof, std::string_view sanitizer) {
  const auto holds = [sanitizer](const std::vector<std::string>& list) {
    return !sanitizer.empty() && std::find(list.begin(), list.end(), sanitizer) != list.end();
  };
  const auto because = [sanitizer](const std::string& reason) {
    return fmt::format("not under {}, as the file says{}{}", sanitizer, reason.empty() ? "" : ": ",
                       reason);
  };
  if (proof != nullptr && holds(proof->not_under)) return because(proof->reason);
  return holds(drill.not_under) ? because(drill.not_under_reason) : std::string();
}

}  // namespace kv::drill
