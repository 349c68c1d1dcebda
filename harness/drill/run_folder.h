// The folder of one run: a short private path that holds its sockets, segments, card and outputs,
// and whatever else helps to understand a run that did not pass.
//
//   plan.txt      the command that repeats the run, then processes and steps
//   trace.txt     the flight recorder as text
//   timeline.html the same as a picture
//   stacks.txt    who waits for what, with stacks, when the run got stuck
//   verdict.json  the result
//   supervisor    which process made it: its number and when it started
//   out/          what the processes wrote: NAME.stdout, NAME.stderr (NAME.2.stdout: started again)
//   s/ m/ card/   sockets, segments and the fake card of the run
//
// Threads: the supervisor's single thread. Ownership: the folder stays until remove() is called.
#ifndef HARNESS_DRILL_RUN_FOLDER_H_
#define HARNESS_DRILL_RUN_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "harness/process/leftovers.h"

namespace kv::drill {

class RunFolder {
 public:
  // Makes a new folder below `runs_folder` (made too, if absent, for this user only).
  // An error says which path and why.
  static tl::expected<RunFolder, std::string> make(const std::string& runs_folder);

  // The path of the folder that this process made there (process_identity()); empty: none is left.
  static std::string of(const std::string& runs_folder, const std::string& identity);

  const std::string& path() const { return path_; }
  std::string socket_root() const { return path_ + "/s"; }
  std::string segment_root() const { return path_ + "/m"; }
  std::string card() const { return path_ + "/card"; }
  std::string ledger() const { return card() + "/ledger"; }
  // stream: "stdout" or "stderr"; `time` counts the starts of a process from 1.
  std::string output(std::string_view process, int time, std::string_view stream) const;

  // The run's own IPC name: unique on this machine while the folder exists.
  const std::string& ipc_name() const { return ipc_name_; }

  // In place of whatever has that name in the folder. False: it could not be written.
  bool write(std::string_view name, std::string_view text) const;
  bool append(std::string_view name, std::string_view text) const;

  // Where the folder is now: a process of the drill may have moved or removed it. Empty: it is
  // gone.
  std::string where() const;

  // Names of what was put there by make() and write() and is not there any more, or is another.
  std::vector<std::string> lost() const;

  // Puts the sockets and the segments on file systems of their own, of so many bytes each. They are
  // there for this process and those that it starts, and end with the last of these. Empty, or why
  // it cannot be done here. To be called once, before anything is started.
  std::string make_small(std::int64_t bytes);

  // Removes everything, wherever it is now. Empty, or what could not be removed and why.
  std::string remove() const;

 private:
  RunFolder() = default;
  bool put(std::string_view name, std::string_view text, int flags) const;
  std::string path_, ipc_name_;
  mutable std::map<std::string, FileId> made_;
  bool small_ = false;
  std::shared_ptr<const int> folder_;  // a descriptor of it: what was put in its place is not ours
};

// Why no run folder can be used below `runs_folder`: a socket's address holds 107 bytes, and what
// engines put below a run folder needs so many of them, with an IPC name of `ipc_bytes` (0: the
// run's own). Empty: there is room.
std::string too_long_for_sockets(const std::string& runs_folder, std::size_t ipc_bytes);

// "no space on PATH: ..." when its file system has not so many bytes left, nor a little more than
// nothing; empty: it has, or does not say.
std::string no_space_on(const std::string& path, std::uint64_t bytes);

// The same for what a run writes at least.
std::string no_room_on(const std::string& path);

// What tells most of a process's standard error, without blank lines, joined by " / "; at most
// `bytes` of it: the first lines of a sanitizer's report, else the last of all.
std::string last_words(const std::string& path, std::size_t bytes);

}  // namespace kv::drill

#endif  // HARNESS_DRILL_RUN_FOLDER_H_
