// The command line of kvdrill, parsed: the only user of CLI11. What the commands do is in
// commands.h.
//
// Threads, ownership: values.
#ifndef HARNESS_CLI_CLI_H_
#define HARNESS_CLI_CLI_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kv::drill {

enum class Command { kRun, kProve, kList, kLint, kCompare, kDoctor, kNew };

struct CommandLine {
  Command command = Command::kRun;
  std::vector<std::string> paths;  // files and folders; compare: the two; new: the name
  std::string engine;              // the engine program; default: kvworker beside kvdrill
  std::string card = "fake";       // fake or cuda
  std::string driver;              // a driver library by path, instead of card
  std::string filter;              // glob on full names; empty: all
  std::string format = "text";     // text or json
  std::string junit_path, report_folder;
  std::string runs_folder = "/tmp";
  int jobs = 0;  // 0: one per core
  std::uint64_t repeat = 1;
  bool until_fail = false;
  std::uint64_t max_fail = 0;  // 0: no limit
  std::optional<std::uint64_t> shuffle;
  std::uint64_t shard_index = 1, shard_count = 1;
  bool keep = false;
  bool last_failed = false;
  std::optional<std::string> pause_at;  // an address
};

// The command line, or what to print and the exit code to leave with (0 after --help, 2 otherwise).
struct Parsed {
  std::optional<CommandLine> line;
  int exit_code = 0;
};
Parsed parse_command_line(int argc, char** argv);

}  // namespace kv::drill

#endif  // HARNESS_CLI_CLI_H_
