// What a process writes to its standard output or error, however much it is: a pipe that the
// supervisor empties into a file, of which only the beginning and the end are kept. So no process
// fills the disk, and none waits for longer than the supervisor is away.
//
// Threads: the supervisor's single thread, whenever fd() is readable. Ownership: owns the pipe and
// the file's descriptor; the file stays.
#ifndef HARNESS_PROCESS_OUTPUT_H_
#define HARNESS_PROCESS_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <tl/expected.hpp>

namespace kv::drill {

class Output {
 public:
  // Bytes kept of the beginning and of the end.
  static constexpr std::uint64_t kHead = std::uint64_t{1} << 20, kTail = std::uint64_t{1} << 20;

  // Catches nothing.
  Output();
  Output(Output&&) noexcept;
  Output& operator=(Output&&) noexcept;
  ~Output();
  // With the file made anew. An error says which path and why.
  static tl::expected<Output, std::string> make(const std::string& path);

  // For the process; close_writing_end() when it has been started.
  int writing_end() const;
  void close_writing_end();

  // Readable when there is something to take; -1 once nobody can write any more.
  int fd() const;
  // Takes what is there, at most so much that others get their turn; never blocks.
  void take();
  // Takes all that is there, if nobody writes any more, and completes the file: its beginning, how
  // much was left out, its end. More may come afterwards.
  void settle();

  std::uint64_t written() const;   // bytes, so far
  std::uint64_t left_out() const;  // of them, those that the file does not hold

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null: catches nothing
};

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_OUTPUT_H_
