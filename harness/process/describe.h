// Asks an engine program what it is made of: its points, steps, notes, commands and roles, as the
// JSON text that it prints when started with "--describe" (see board/kvdrill.h).
//
// Threads: the calling thread only; it must have no other (a keeper is forked from it).
// Ownership: values; whatever the program starts is gone when this returns, and soon after this
// process is killed.
#ifndef HARNESS_PROCESS_DESCRIBE_H_
#define HARNESS_PROCESS_DESCRIBE_H_

#include <map>
#include <string>
#include <tl/expected.hpp>

namespace kv::drill {

struct NoDescription {
  std::string why;
  bool interrupted = false;  // SIGINT or SIGTERM came meanwhile
};

// The program's standard output, or why there is none: it did not start, ended otherwise than with
// code 0, or did not end within `limit_ms` (it is killed then). Nothing but `environment` is handed
// to it. Whether the text is a description is the reader's to judge.
tl::expected<std::string, NoDescription> describe(
    const std::string& program, int limit_ms,
    const std::map<std::string, std::string>& environment = {});

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_DESCRIBE_H_
