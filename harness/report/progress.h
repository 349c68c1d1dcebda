// The line at the bottom of a terminal while drills run: how many are done, how many failed, which
// one runs, for how long. Elsewhere there is no such line, and every function does nothing.
//
// Threads: the calling thread only. Ownership: values; it writes to standard output.
#ifndef HARNESS_REPORT_PROGRESS_H_
#define HARNESS_REPORT_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace kv::drill {

// "[12/98] 1 failed, 3 s: stalled header", without control characters and cut to `columns`.
std::string progress_text(std::size_t done, std::size_t total, std::uint64_t failed,
                          std::int64_t ns, std::string_view running, std::size_t columns);

class Progress {
 public:
  Progress(bool shown, std::size_t total) : shown_(shown), total_(total) {}

  // Of jobs, by number; the one that runs for the longest is named.
  void started(std::size_t job, std::string name, std::int64_t ns);
  void ended(std::size_t job, std::int64_t ns);
  void failed() { ++failed_; }
  void show(std::int64_t ns);  // rewrites the line
  void clear();                // makes room for another line

 private:
  const bool shown_;
  const std::size_t total_;
  std::size_t done_ = 0;
  std::uint64_t failed_ = 0;
  std::map<std::size_t, std::string> running_;  // the lowest number was started first
  bool visible_ = false;
};

}  // namespace kv::drill

#endif  // HARNESS_REPORT_PROGRESS_H_
