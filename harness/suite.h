// What a command works on: the engine's own description, the scenario files loaded and checked
// against it, and the runs chosen from them.
//
// Threads: the calling thread only. Ownership: a Suite owns its scenarios; jobs point into it.
#ifndef HARNESS_SUITE_H_
#define HARNESS_SUITE_H_

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "harness/cli.h"
#include "harness/runner.h"
#include "harness/scenario.h"

namespace kv::drill {

struct Suite {
  Engine engine;
  std::string driver;  // the driver library for the engine
  bool fake_card = true;
  std::vector<Scenario> scenarios;
  std::uint64_t proofs = 0;  // of all files, chosen or not
};

struct SuiteError {
  std::vector<std::string> lines;  // for standard error
  int exit_code = 2;               // 2: files or usage; 4: the engine does not describe itself
};

// Finds the programs, asks the engine for its description, loads every file; nothing is run.
tl::expected<Suite, SuiteError> open_suite(const CommandLine& line);

// Whether `pattern` (with * and ?; empty: everything) names the drill, or its whole scenario.
bool chosen(const std::string& pattern, const Drill& drill);

// The drills that the command line asks for, in the order to run them, each once.
std::vector<const Drill*> choose(const Suite& suite, const CommandLine& line);

// A job without a proof, or with one.
Job make_job(const Suite& suite, const CommandLine& line, const Drill& drill, const Proof* proof);

// The sanitizer this program was built with, as in not_under; empty without.
std::string_view sanitizer();
// Why this run is not made in this build; empty: it is.
std::string reason_to_skip(const Drill& drill, const Proof* proof);

}  // namespace kv::drill

#endif  // HARNESS_SUITE_H_
