// The single probes of the doctor. Each that returns a text says why not; empty: it works.
// Nobody else includes it.
#ifndef HARNESS_CLI_DOCTOR_PROBES_H_
#define HARNESS_CLI_DOCTOR_PROBES_H_

#include <cstdint>
#include <string>

namespace kv::drill {

std::string probe_pidfd();
std::string probe_subreaper();
std::string probe_memfd();
std::string probe_descriptors();
std::string probe_runs_folder(const std::string& runs_folder);
std::string probe_locks(const std::string& folder);
std::string probe_shared_memory();
std::string probe_ptrace();
std::string probe_cores();
std::string probe_addr2line();

// ~0: no limit.
std::uint64_t limit_of_files();
std::uint64_t limit_of_processes();
// The number that a file of /proc begins with; ~0 when there is none.
std::uint64_t number_in(const std::string& path);

}  // namespace kv::drill

#endif  // HARNESS_CLI_DOCTOR_PROBES_H_
