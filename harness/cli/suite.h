// What a command works on: the engine's own description, the scenario files loaded and checked
// against it, and the runs chosen from them.
//
// Threads: the calling thread only. Ownership: a Suite owns its scenarios; jobs point into it.
#ifndef HARNESS_CLI_SUITE_H_
#define HARNESS_CLI_SUITE_H_

#include <set>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "harness/board/sanitizer.h"
#include "harness/cli/cli.h"
#include "harness/drill/runner.h"
#include "harness/scenario/scenario.h"

namespace kv::drill {

struct Suite {
  Engine engine;
  std::string driver;  // the driver library for the engine
  bool fake_card = true;
  // Moments that scenarios may name and this driver does not have: the fake card's.
  std::set<std::string> not_of_driver = {};
  std::vector<Scenario> scenarios;
  std::uint64_t proofs = 0;  // of all files, chosen or not
};

struct SuiteError {
  std::vector<std::string> lines;  // for standard error
  int exit_code = 2;               // 2: files or usage; 4: the engine does not describe
                                   // itself, or this machine is unfit; 130: interrupted
};

// Why no drill of the suite can be run here and now: no such driver library, or one that cannot be
// loaded (tried in a process of its own); a folder for the runs whose path is too long; a report's
// file in whose place something else is.
tl::expected<void, SuiteError> ready_to_run(const Suite& suite, const CommandLine& line);

// Finds the programs, asks the engine for its description, loads every file; nothing is run.
tl::expected<Suite, SuiteError> open_suite(const CommandLine& line);

// Whether `pattern` (with * and ?; empty: everything) names the drill, or its whole scenario.
bool chosen(const std::string& pattern, const Drill& drill);

// The drills that the command line asks for, in the order to run them, each once; of them only
// those whose full names are in `only`, if that is not null.
std::vector<const Drill*> choose(const Suite& suite, const CommandLine& line,
                                 const std::set<std::string>* only = nullptr);

// Where --pause-at stops this drill: the address, with its names checked. An error names the part
// that is wrong, and what was expected.
tl::expected<Address, std::string> pause_address(const Suite& suite, const std::string& text,
                                                 const Drill& drill);

// A job without a proof, or with one.
Job make_job(const Suite& suite, const CommandLine& line, const Drill& drill, const Proof* proof);

// Why this library cannot be loaded, tried in a process of its own: a driver may start threads, and
// this process has none. Empty: it can.
std::string why_not_loadable(const std::string& library);

// The folder of this program: the default engine and the fake card lie below it.
std::string own_folder();

// Why this run is not made with this driver, or in this build; empty: it is.
std::string reason_to_skip(const Suite& suite, const Drill& drill, const Proof* proof);
// Why this run is not made under this sanitizer, with the file's reason; empty: it is.
std::string reason_to_skip(const Drill& drill, const Proof* proof,
                           std::string_view sanitizer = kSanitizer);

}  // namespace kv::drill

#endif  // HARNESS_CLI_SUITE_H_
