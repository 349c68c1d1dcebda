#include "harness/cli/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string_view>
#include <system_error>

#include "harness/report/report.h"
#include "harness/scenario/names.h"

namespace kv::drill {
namespace {

constexpr const char* kAbout =
    "kvdrill: fire drills for elastic KV-cache runtimes.\n"
    "Runs scenario files on real processes and says what broke.";
constexpr const char* kFooter =
    "Exit codes: 0 all passed, 1 failed, 2 usage or invalid scenario, 3 void, 4 harness error,\n"
    "130 interrupted. The language of scenario files: scenarios/README.md.\n"
    "Environment: NO_COLOR (no colours), CI (no progress line), GITHUB_ACTIONS (annotations),\n"
    "XDG_CACHE_HOME (default ~/.cache; kvdrill/last-failed/ below it is for --last-failed).";
constexpr std::uint64_t kMost = 1'000'000;

// In digits, and nothing else that a conversion would take for a number.
std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool padded = text.size() > 1 && text.front() == '0';
  if (error != std::errc() || end != text.data() + text.size() || padded) return std::nullopt;
  return number;
}

CLI::Validator whole(std::uint64_t least, std::uint64_t most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        const auto number = whole_number(text);
        if (number && *number >= least && *number <= most) return std::string();
        return fmt::format("'{}', expected a whole number from {} to {}", text, least, most);
      },
      "");
}

// An empty value is a variable that was not set, or a slip.
const CLI::Validator& not_empty() {
  static const CLI::Validator check(
      [](const std::string& value) {
        return value.empty() ? std::string("expected a value that is not empty") : std::string();
      },
      "");
  return check;
}

void add_paths(CLI::App* command, CommandLine* line) {
  command->add_option("paths", line->paths, "Scenario files, or folders of them")
      ->default_str("scenarios");
  command->add_option("--engine", line->engine, "Engine program (default: kvworker beside kvdrill)")
      ->check(not_empty())
      ->type_name("PROGRAM");
  command->add_option("--card", line->card, "fake: the card of this project; cuda: the real driver")
      ->check(CLI::IsMember({"fake", "cuda"}))
      ->type_name("fake|cuda");
  command->add_option("--driver", line->driver, "A driver library by path, instead of --card")
      ->check(not_empty())
      ->type_name("FILE");
  command
      ->add_option("--filter", line->filter, "Only drills whose name matches this pattern (*, ?)")
      ->check(not_empty())
      ->type_name("GLOB");
}

void add_running(CLI::App* command, CommandLine* line) {
  command->add_option("-j,--jobs", line->jobs, "Drills side by side (default: one per core)")
      ->check(whole(0, 1024))
      ->type_name("N");
  command->add_option("--format", line->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json");
  command->add_option("--repeat", line->repeat, "Run each drill, or proof, N times")
      ->check(whole(1, kMost))
      ->type_name("N");
  command->add_option("--report", line->report_folder, "Bring DIR/index.html up to date")
      ->check(not_empty())
      ->type_name("DIR");
  command->add_option("--runs", line->runs_folder, "Where run folders are made (default: /tmp)")
      ->check(not_empty())
      ->type_name("DIR");
  command->add_flag("--keep", line->keep, "Keep the run folders of passing runs too");
}

void add_choosing(CLI::App* run, CommandLine* line, std::string* shard) {
  run->add_flag("--until-fail", line->until_fail, "Stop at the first run that does not pass");
  run->add_option("--max-fail", line->max_fail, "Stop after N runs that did not pass")
      ->check(whole(1, kMost))
      ->type_name("N");
  run->add_flag("--last-failed", line->last_failed,
                "Only drills that did not pass when they last ran, started from this folder");
  run->add_option("--shuffle", line->shuffle, "Run in an order drawn from SEED")
      ->check(whole(0, std::numeric_limits<std::uint64_t>::max()))
      ->type_name("SEED");
  run->add_option("--shard", *shard, "Run the I-th of N parts of the suite")->type_name("I/N");
  run->add_option("--pause-at", line->pause_at,
                  "Stand still there, for a debugger, until Enter; for one drill, see --filter")
      ->check(not_empty())
      ->type_name("POINT");
  run->add_option("--junit", line->junit_path, "Write JUnit XML")
      ->check(not_empty())
      ->type_name("FILE");
}

void add_small_commands(CLI::App* app, CommandLine* line) {
  CLI::App* compare = app->add_subcommand(
      "compare", "What got worse and what was mended between two results (--format json)");
  compare->add_option("files", line->paths, "Before and after: what 'run' or 'prove' wrote")
      ->required()
      ->expected(2)
      ->type_name("A.json B.json");
  compare->add_option("--format", line->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json");
  CLI::App* doctor =
      app->add_subcommand("doctor", "Say what this machine lacks and what that costs");
  doctor->add_option("--runs", line->runs_folder, "Where run folders would be made (default: /tmp)")
      ->check(not_empty())
      ->type_name("DIR");
  CLI::App* fresh = app->add_subcommand("new", "Write a commented drill that passes");
  fresh->add_option("name", line->paths, "Of the drill (scenarios/NAME.toml), or a path (*.toml)")
      ->required()
      ->expected(1)
      ->type_name("NAME");
}

Command command_of(const CLI::App& app) {
  static const std::map<std::string, Command> kCommands = {
      {"run", Command::kRun},   {"prove", Command::kProve},     {"list", Command::kList},
      {"lint", Command::kLint}, {"compare", Command::kCompare}, {"doctor", Command::kDoctor},
      {"new", Command::kNew}};
  return kCommands.at(app.get_subcommands().at(0)->get_name());
}

bool parse_shard(const std::string& text, CommandLine* line) {
  if (text.empty()) return true;
  const auto slash = std::min(text.find('/'), text.size());
  const auto index = whole_number(std::string_view(text).substr(0, slash));
  const auto count = whole_number(std::string_view(text).substr(std::min(slash + 1, text.size())));
  if (!index || !count || *index < 1 || *index > *count || *count > kMost) {
    complain(fmt::format(
        "--shard: '{}' is not a part of the suite, expected I/N with 1 <= I <= N <= {} (1/4)", text,
        kMost));
    return false;
  }
  line->shard_index = *index;
  line->shard_count = *count;
  return true;
}

// Of a command line that is refused: the word that is no command or option, with the nearest one.
// Empty: the fault is another.
std::string unknown_word(const CLI::App& app, int argc, char** argv) {
  if (argc < 2) return {};
  const std::string first = argv[1];
  std::vector<std::string> commands;
  const CLI::App* command = nullptr;
  for (const CLI::App* one : app.get_subcommands({})) {
    commands.push_back(one->get_name());
    if (one->get_name() == first) command = one;
  }
  if (command == nullptr) {
    return fmt::format("unknown command '{}'{}", first, expected_one(first, commands));
  }
  std::vector<std::string> options;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  for (int i = 2; i < argc; ++i) {
    const std::string_view word(argv[i]);
    if (!word.starts_with("--")) continue;
    const std::string name(word.substr(0, word.find('=')));
    if (std::find(options.begin(), options.end(), name) != options.end()) continue;
    return fmt::format("{}: unknown option {}{}", first, name, expected_one(name, options));
  }
  return {};
}

}  // namespace

Parsed parse_command_line(int argc, char** argv) {
  CommandLine line;
  std::string shard;
  CLI::App app{kAbout, "kvdrill"};
  app.footer(kFooter);
  app.set_version_flag("--version", "kvdrill " KVDRILL_VERSION);
  app.require_subcommand(1);
  CLI::App* run = app.add_subcommand("run", "Run drills and print their verdicts");
  CLI::App* prove = app.add_subcommand(
      "prove", "Run each proof: with its protections left out, exactly the named checks must fail");
  CLI::App* list = app.add_subcommand("list", "List drills, arms and proofs");
  CLI::App* lint = app.add_subcommand("lint", "Check scenario files without running them");
  for (CLI::App* command : {run, prove, list, lint}) add_paths(command, &line);
  for (CLI::App* command : {run, prove}) add_running(command, &line);
  add_choosing(run, &line, &shard);
  add_small_commands(&app, &line);
  list->add_option("--format", line.format, "text or json")->check(CLI::IsMember({"text", "json"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool answered = error.get_exit_code() == 0;  // --help, --version
    const std::string why = answered ? "" : unknown_word(app, argc, argv);
    if (why.empty()) {
      app.exit(error);
    } else {
      complain(why);
    }
    return {std::nullopt, answered ? 0 : 2};
  }
  if (!parse_shard(shard, &line)) return {std::nullopt, 2};
  if (line.paths.empty()) line.paths = {"scenarios"};
  line.command = command_of(app);
  return {std::move(line), 0};
}

}  // namespace kv::drill
