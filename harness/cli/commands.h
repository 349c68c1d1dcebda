// What kvdrill's commands do. Each returns the program's exit code.
#ifndef HARNESS_CLI_COMMANDS_H_
#define HARNESS_CLI_COMMANDS_H_

#include "harness/cli/cli.h"
#include "harness/cli/suite.h"

namespace kv::drill {

int run_command(const Suite& suite, const CommandLine& line);
int prove_command(const Suite& suite, const CommandLine& line);
// What is said where --filter leaves nothing.
int no_drill_matches(const CommandLine& line);
int list_command(const Suite& suite, const CommandLine& line);
// These look at no scenario.
int compare_command(const CommandLine& line);
int doctor_command(const CommandLine& line);
int new_command(const CommandLine& line);

}  // namespace kv::drill

#endif  // HARNESS_CLI_COMMANDS_H_
