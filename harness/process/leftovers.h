// What a drill left behind, outside the card: files, sockets and segments, and what a living
// process holds (descriptors, threads).
//
// Threads: the supervisor's single thread. Ownership: values.
#ifndef HARNESS_PROCESS_LEFTOVERS_H_
#define HARNESS_PROCESS_LEFTOVERS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

// Everything below `root` (paths relative to it, sorted; directories end in '/'); empty when the
// root itself is absent.
std::vector<std::string> tree(const std::string& root);

struct FileId {
  bool exists = false, is_socket = false;
  std::uint64_t device = 0, inode = 0;
  // When it was made, where the file system says: a new file may get the number of one just gone.
  std::int64_t made_ns = 0;
  bool operator==(const FileId&) const = default;
};
FileId identify(const std::string& path);  // by lstat

// The names that an instance may be known by where programs of its kind put their sockets and
// segments if nobody tells them otherwise: /tmp/kvcached-tp-NAME-HASH, /dev/shm/NAME.
struct InstanceNames {
  std::string own;  // of this run alone: whatever holds it there is this run's
  // Others may use these as well: only what is named just so.
  std::vector<std::string> shared;
};
// What is there now by these names (directories end in '/'), sorted. Compare with what was there
// before the run: that is not its own.
std::map<std::string, FileId> default_places(const InstanceNames& names);

// One open descriptor of a process. Two looks that find the same have found the same thing open
// under the same number, as far as the kernel tells: not only another of the same name.
struct OpenDescriptor {
  int number = -1;
  std::string target;  // "/dev/null", "socket:[12]"; not compared: a file may lose its name
  FileId file;
  std::string own_id;  // of an anonymous file, which has no inode of its own; empty: it has none
  bool operator==(const OpenDescriptor& other) const {
    return number == other.number && file == other.file && own_id == other.own_id;
  }
};
std::string to_string(const OpenDescriptor& descriptor);  // "7 -> /dev/null"

// One living thread of a process. No other one of this boot has both its number and its start.
struct LivingThread {
  pid_t tid = 0;
  std::string start, name;  // the kernel's name of it
  bool operator==(const LivingThread& other) const {
    return tid == other.tid && start == other.start;
  }
};

// By number; empty when the process is gone.
std::vector<OpenDescriptor> open_descriptors(pid_t pid);
std::vector<LivingThread> living_threads(pid_t pid);

// Removes a tree without following links out of it. Empty, or what could not be removed and why.
std::string remove_tree(const std::string& root);

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_LEFTOVERS_H_
