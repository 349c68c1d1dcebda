// What the commands that run drills share. Nobody else includes it.
#ifndef HARNESS_CLI_COMMANDS_INTERNAL_H_
#define HARNESS_CLI_COMMANDS_INTERNAL_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/cli/cli.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

inline constexpr int kExitInterrupted = 130;

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

// How many drills run side by side.
int parallel(const CommandLine& line);

DrillResult skipped(const Drill& drill, std::string reason);

// A drill that is expected to fail passes by failing, and the other way round: so a server with
// known faults can have the suite, and notices when one of them is mended. A run in which no
// process became ready is an error: it says nothing about what is expected.
void apply_expectation(const Drill& drill, DrillResult* result);

// Annotations go where the command's own lines are not in their way.
void print_annotations(std::string_view lines, bool text);

}  // namespace kv::drill

#endif  // HARNESS_CLI_COMMANDS_INTERNAL_H_
