// What this machine lacks for drills, tried out rather than looked up where that can be done.
//
// Threads: the calling thread only; it must have no other (probes fork). Ownership: values; the
// probes leave nothing behind.
#ifndef HARNESS_CLI_DOCTOR_H_
#define HARNESS_CLI_DOCTOR_H_

#include <string>
#include <vector>

namespace kv::drill {

struct Finding {
  enum class Kind { kFine, kCosts, kLacks };  // lacks: no drill can run without it
  Kind kind = Kind::kFine;
  std::string what, found;
  std::string cost;  // empty when fine
};

// `runs_folder`: where run folders would be made.
std::vector<Finding> examine(const std::string& runs_folder);

std::string findings_text(const std::vector<Finding>& findings, bool color);
bool can_run(const std::vector<Finding>& findings);

}  // namespace kv::drill

#endif  // HARNESS_CLI_DOCTOR_H_
