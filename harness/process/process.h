// Starts the processes of a drill and reads how they ended: the only file that starts engine
// programs, and the only user of Boost.Process, whose version 1.81 leaks descriptors into children,
// leaves a zombie and runs exit handlers in the child after a failed exec, does not reap after
// terminate, reports a crash as code 0 when something else reaped, and cannot tell exit(11) from
// SIGSEGV. Each of these is contained here and tested (process_test.cc, one test each).
//
// Threads: the supervisor's single thread; a started program dies with the very thread that started
// it. Ownership: a Child owns its pidfd; the supervisor reaps.
#ifndef HARNESS_PROCESS_PROCESS_H_
#define HARNESS_PROCESS_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace kv::drill {

struct Launch {
  std::string program;                             // a path; no search
  std::vector<std::string> arguments;              // without the program's name
  std::map<std::string, std::string> environment;  // the whole of it: nothing is inherited
  std::string folder;                              // working directory; empty: ours
  int out = -1, err = -1;                          // ours, its standard outputs; -1: /dev/null
  // Descriptors the child gets: (ours, its number, 3 to 255). All others are closed in it; 0 is
  // /dev/null. Any numbering will do, also one that exchanges two.
  std::vector<std::pair<int, int>> descriptors;
  std::map<int, std::uint64_t> limits;  // by resource (RLIMIT_NOFILE), soft and hard alike
};

// How a process ended, from the raw wait status.
struct End {
  bool by_signal = false;
  int value = 0;  // exit code or signal
  bool core = false;
  bool unknown = false;  // somebody else reaped it: nothing is known, and nothing is made up
  bool operator==(const End&) const = default;
};
std::string signal_name(int signal);    // "SIGSEGV"; "signal 77" when it has no name here
std::string to_string(const End& end);  // "exit code 3", "SIGSEGV", "SIGABRT (core)"

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
  // Reaps it if it has ended; this one, never "any child". The same answer again afterwards.
  std::optional<End> reap();

 private:
  pid_t pid_ = 0;
  int pidfd_ = -1;
  std::optional<End> end_;
};

// The child is its own process group, dies with the supervisor (parent-death signal), has default
// signal dispositions and an empty mask, and no core files. Returns once the program was
// executed. An error says which program and why ("no such file"); nothing is
// left then.
tl::expected<Child, std::string> start(const Launch& launch);

// What to do when the kernel refuses a process with this errno, to stand behind the reason; empty:
// nothing is known.
std::string advice_on_fork(int error);

// All living descendants of this process (which is a subreaper): from /proc, children before their
// children. A moment's answer, as processes come and go; zombies are not among them.
std::vector<pid_t> descendants();
// The kernel's name of a process ("comm"); "?" when it is gone.
std::string process_name(pid_t pid);
// Kills and reaps every descendant until none is left, exactly; `killed` (may be null) gets the
// pids that had to be killed, not those that had ended. For a subreaper: the orphans of whom it
// kills become its children, so it kills children only, whose numbers cannot be a stranger's.
// It takes the ends of started programs, too: reap what you want to know before.
// Children in `spared` are left alone, with all that is below them.
// Bounded: gives up after `limit_ms` of wall time and says so by returning false.
bool end_descendants(int limit_ms, std::vector<pid_t>* killed,
                     const std::vector<pid_t>& spared = {});
// Why nothing here can be believed: no /proc is mounted, or that of another pid namespace. Empty:
// it is ours.
std::string wrong_proc();
// Our own children, zombies too.
std::vector<pid_t> own_children();
// A process's number and when it started: no other one of this boot has both. Empty: it is gone
// (a zombie is not).
std::string process_identity(pid_t pid);

// Runs a program to its end (describe, addr2line); its standard output, or why not: it did not
// start, ended otherwise than with code 0 (with the last of its standard error), wrote more than
// 16 MiB. Bounded by `limit_ms`, and by `stop`, a descriptor that becomes readable (-1: none). Its
// whole process group is killed at the end.
tl::expected<std::string, std::string> output_of(
    const std::string& program, const std::vector<std::string>& arguments,
    const std::map<std::string, std::string>& environment, int limit_ms, int stop = -1);

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_PROCESS_H_
