// What a drill left behind, outside the card: files, sockets and segments, and what a living
// process holds (descriptors, threads).
//
// Threads: the supervisor's single thread. Ownership: values.
#ifndef HARNESS_PROCESS_LEFTOVERS_H_
#define HARNESS_PROCESS_LEFTOVERS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

// Everything below `root` (paths relative to it, sorted; directories end in '/'); empty when the
// root itself is absent.
std::vector<std::string> tree(const std::string& root);

// Entries of the default places (/tmp/kvcached-tp-*, /dev/shm) that carry the IPC name of this run.
std::vector<std::string> default_places(std::string_view ipc_name);

struct FileId {
  bool exists = false, is_socket = false;
  std::uint64_t device = 0, inode = 0;
  // When it was made, where the file system says: a new file may get the number of one just gone.
  std::int64_t made_ns = 0;
  bool operator==(const FileId&) const = default;
};
FileId identify(const std::string& path);  // by lstat

// A process's open descriptors as "number -> target" lines, sorted, and its number of threads;
// empty and 0 when it is gone.
std::vector<std::string> open_descriptors(pid_t pid);
int thread_count(pid_t pid);

// Removes a tree without following links out of it. Empty, or what could not be removed and why.
std::string remove_tree(const std::string& root);

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_LEFTOVERS_H_
