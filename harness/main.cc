// kvdrill: reads the command line, opens the suite, carries out the command.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "harness/cli.h"
#include "harness/commands.h"
#include "harness/suite.h"

namespace {

int carry_out(const kv::drill::CommandLine& line) {
  using kv::drill::Command;
  auto suite = kv::drill::open_suite(line);
  if (!suite) {
    for (const std::string& text : suite.error().lines) std::fprintf(stderr, "%s\n", text.c_str());
    return suite.error().exit_code;
  }
  switch (line.command) {
    case Command::kRun:
      return kv::drill::run_command(*suite, line);
    case Command::kProve:
      return kv::drill::prove_command(*suite, line);
    case Command::kList:
      return kv::drill::list_command(*suite, line);
    case Command::kLint:
      std::printf("%zu files, no fault\n", suite->scenarios.size());
      return 0;
  }
  return 4;
}

}  // namespace

int main(int argc, char** argv) {
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
    std::fprintf(stderr, "kvdrill: %s\n", error.what());
    return 4;
  }
}
