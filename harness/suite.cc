#include "harness/suite.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "harness/describe.h"
#include "harness/engine.h"
#include "harness/loader.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;

constexpr int kDescribeLimitMs = 10'000;

fs::path own_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path(".") : self.parent_path();
}

tl::expected<std::string, std::string> read_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return tl::unexpected(fmt::format("{}: expected a regular file", path));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return tl::unexpected(fmt::format("{}: cannot be read", path));
  return text.str();
}

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

std::string options_to_repeat(const CommandLine& line) {
  std::string options;
  if (!line.engine.empty()) options += " --engine " + shell_word(line.engine);
  if (!line.driver.empty()) options += " --driver " + shell_word(line.driver);
  if (line.card != "fake") options += " --card " + line.card;
  return options;
}

tl::expected<Engine, SuiteError> describe_engine(const std::string& program) {
  if (::access(program.c_str(), X_OK) != 0) {
    return tl::unexpected(SuiteError{
        {fmt::format("kvdrill: engine {}: not a program that can be started", program)}, 2});
  }
  auto text = describe(program, kDescribeLimitMs);
  if (!text) {
    return tl::unexpected(
        SuiteError{{fmt::format("kvdrill: engine {} --describe: {}", program, text.error())}, 4});
  }
  auto engine = engine_from_json(program, *text);
  if (!engine) {
    return tl::unexpected(
        SuiteError{{fmt::format("kvdrill: engine {} --describe: {}", program, engine.error())}, 4});
  }
  return *std::move(engine);
}

tl::expected<void, SuiteError> load_all(const CommandLine& line, Suite* suite) {
  auto files = find_scenarios(line.paths);
  if (!files) return tl::unexpected(SuiteError{{to_string(files.error())}, 2});
  SuiteError faults;
  for (const std::string& file : *files) {
    auto text = read_file(file);
    if (!text) {
      faults.lines.push_back(text.error());
      continue;
    }
    auto scenario = load_scenario(file, *text, suite->engine);
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
  Suite suite;
  const fs::path here = own_folder();
  const std::string program =
      line.engine.empty() ? (here / "kvworker").string() : fs::absolute(line.engine).string();
  auto engine = describe_engine(program);
  if (!engine) return tl::unexpected(std::move(engine.error()));
  suite.engine = *std::move(engine);
  suite.fake_card = line.driver.empty() && line.card == "fake";
  suite.driver = !line.driver.empty()  ? fs::absolute(line.driver).string()
                 : line.card == "cuda" ? std::string("libcuda.so.1")
                                       : (here / "card" / "libcuda.so.1").string();
  if (auto loaded = load_all(line, &suite); !loaded)
    return tl::unexpected(std::move(loaded.error()));
  return suite;
}

bool chosen(const std::string& pattern, const Drill& drill) {
  if (pattern.empty()) return true;
  return ::fnmatch(pattern.c_str(), drill.full_name().c_str(), 0) == 0;
}

std::vector<const Drill*> choose(const Suite& suite, const CommandLine& line) {
  std::vector<const Drill*> drills;
  for (const Scenario& scenario : suite.scenarios) {
    for (const Drill& drill : scenario.drills) {
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

Job make_job(const Suite& suite, const CommandLine& line, const Drill& drill, const Proof* proof) {
  Job job;
  job.drill = &drill;
  job.proof = proof;
  RunOptions& options = job.options;
  options.engine = suite.engine.path;
  options.driver = suite.driver;
  options.fake_card = suite.fake_card;
  options.runs_folder = fs::absolute(line.runs_folder).string();
  options.keep = line.keep;
  if (proof != nullptr) {
    options.skip = proof->skip;
    options.expected_failures = proof->fails;
  }
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  options.repeat = fmt::format("{} {} {} --filter {}{} --keep", shell_word(self.string()),
                               proof == nullptr ? "run" : "prove", shell_word(drill.position.file),
                               shell_word(pattern_of(drill.full_name())), options_to_repeat(line));
  return job;
}

std::string_view sanitizer() {
#if defined(__SANITIZE_ADDRESS__)
  return "asan";
#elif defined(__SANITIZE_THREAD__)
  return "tsan";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return "asan";
#elif __has_feature(thread_sanitizer)
  return "tsan";
#else
  return {};
#endif
#else
  return {};
#endif
}

std::string reason_to_skip(const Drill& drill, const Proof* proof) {
  const std::string_view mine = sanitizer();
  if (mine.empty()) return {};
  const auto& lists = proof != nullptr ? proof->not_under : drill.not_under;
  if (std::find(lists.begin(), lists.end(), mine) != lists.end() ||
      std::find(drill.not_under.begin(), drill.not_under.end(), mine) != drill.not_under.end()) {
    return fmt::format("not under {}, as the file says", mine);
  }
  return {};
}

}  // namespace kv::drill
