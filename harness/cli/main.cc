// kvdrill: reads the command line, opens the suite, carries out the command.

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "harness/base/interrupts.h"
#include "harness/cli/cli.h"
#include "harness/cli/commands.h"
#include "harness/cli/suite.h"
#include "harness/report/report.h"

namespace {

// The end of a command that never came to its work.
int refused(const kv::drill::SuiteError& error) {
  for (const std::string& text : error.lines) {
    std::fprintf(stderr, "%s\n", kv::drill::one_line(text).c_str());
  }
  return error.exit_code;
}

int work_on_suite(const kv::drill::CommandLine& line) {
  using kv::drill::Command;
  auto suite = kv::drill::open_suite(line);
  if (!suite) return refused(suite.error());
  const bool looks = line.command == Command::kList || line.command == Command::kLint;
  if (looks && kv::drill::choose(*suite, line).empty()) return kv::drill::no_drill_matches(line);
  if (line.command == Command::kList) return kv::drill::list_command(*suite, line);
  if (line.command == Command::kLint) {
    std::printf("%s, no fault\n", kv::drill::counted(suite->scenarios.size(), "file").c_str());
    return 0;
  }
  if (auto ready = kv::drill::ready_to_run(*suite, line); !ready) return refused(ready.error());
  return line.command == Command::kRun ? kv::drill::run_command(*suite, line)
                                       : kv::drill::prove_command(*suite, line);
}

int carry_out(const kv::drill::CommandLine& line) {
  using kv::drill::Command;
  switch (line.command) {
    case Command::kCompare:
      return kv::drill::compare_command(line);
    case Command::kDoctor:
      return kv::drill::doctor_command(line);
    case Command::kNew:
      return kv::drill::new_command(line);
    default:
      return work_on_suite(line);
  }
}

// A number below 3 that is closed would be given to the next file that is opened, and be taken for
// what it is not. Opened for reading: what is written there fails, as it did before.
void keep_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) != fd) std::_Exit(4);
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_descriptors();
  kv::drill::take_signals();
  try {
    const kv::drill::Parsed parsed = kv::drill::parse_command_line(argc, argv);
    const int code = parsed.line ? carry_out(*parsed.line) : parsed.exit_code;
    // A verdict that nobody could read is none.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      std::fprintf(stderr, "kvdrill: standard output could not be written: %s\n",
                   std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): one thread
      return 4;
    }
    return code;
  } catch (const std::exception& error) {
    kv::drill::complain(error.what());
    return 4;
  }
}
