// Starts the processes of a drill and reads how they ended: the only file that starts engine
// programs, and the only user of Boost.Process, whose version 1.81 leaks descriptors into children,
// leaves a zombie and runs exit handlers in the child after a failed exec, does not reap after
// terminate, and cannot tell exit(11) from SIGSEGV. Each of these is contained here and tested.
//
// Threads: the supervisor's single thread. Ownership: a Child owns its pidfd; the supervisor reaps.
#ifndef HARNESS_PROCESS_H_
#define HARNESS_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace kv::drill {

struct Launch {
  std::string program;
  std::vector<std::string> arguments;              // without the program's name
  std::map<std::string, std::string> environment;  // the whole of it: nothing is inherited
  std::string folder;                              // working directory
  std::string stdout_path, stderr_path;            // files, made anew
  // Descriptors the child gets: (ours, its number). All others are closed in it; 0 is /dev/null.
  std::vector<std::pair<int, int>> descriptors;
};

// How a process ended, from the raw wait status.
struct End {
  bool by_signal = false;
  int value = 0;  // exit code or signal
  bool core = false;
};

class Child {
 public:
  Child(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();  // closes the pidfd; never kills, never waits

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }  // readable when the process has ended
  // Sends through the pidfd: never a stranger that got the same number. False: it is gone.
  bool signal(int signal) const;
  // Reaps it if it has ended; by pid, never "any child".
  std::optional<End> reap();

 private:
  pid_t pid_ = 0;
  int pidfd_ = -1;
};

// The child is its own process group, dies with the supervisor (parent-death signal), and has core
// files limited to 0 unless `keep_cores`. An error says which program and why ("no such file").
tl::expected<Child, std::string> start(const Launch& launch, bool keep_cores = false);

// All living descendants of this process (which is a subreaper): from /proc, children first.
std::vector<pid_t> descendants();
// Kills and reaps every descendant until none is left; returns the pids that had to be killed.
// Bounded: gives up after `limit_ms` of wall time and says so by returning false.
bool end_descendants(int limit_ms, std::vector<pid_t>* killed);

// Runs a program to its end (describe, addr2line); its standard output, or why not.
// Bounded by `limit_ms`; the program is killed then.
tl::expected<std::string, std::string> output_of(const std::string& program,
                                                 const std::vector<std::string>& arguments,
                                                 const std::map<std::string, std::string>& environment,
                                                 int limit_ms);

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_H_
