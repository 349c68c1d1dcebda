// What a listener has on disk: its socket file and the private directories that lead to it.
//
// Threads: one at a time. Ownership: owns the file and, as long as they are empty, the directories
// below the root; remove() gives them back, the destructor leaves them alone.
#ifndef KVCORE_LISTENER_LISTENER_FILES_H_
#define KVCORE_LISTENER_LISTENER_FILES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvcore/base/status.h"
#include "kvcore/base/unique_fd.h"

namespace kv {

class SocketFile {
 public:
  struct Bound;
  // Makes the directories between `root` (it must exist) and the socket, mode 0700 and owned by
  // this user, and binds a listening, non-blocking socket to `path`. A socket file that nobody
  // listens on is replaced; anything else at the path is kAlreadyExists. On failure nothing that
  // was made here is left.
  static Result<Bound> create(const std::string& path, const std::string& root);

  // Unlinks the socket if the path still is the one that create() bound, then removes the
  // directories below the root that are empty, the deepest first. What is gone already is fine, and
  // so is a directory in which somebody else has something. Repeatable: what failed is tried again.
  // The listening socket must still be open: an open socket keeps its inode number from being given
  // to another file, and that number is how the path is known to be ours.
  Status remove(std::int64_t generation);

 private:
  Status unlink_own(std::int64_t generation);
  Status remove_directories(std::int64_t generation);

  std::string path_;
  std::vector<std::string> directories_;  // the deepest first
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool unlinked_ = false;
};

struct SocketFile::Bound {
  SocketFile file;
  UniqueFd listening;
};

}  // namespace kv

#endif  // KVCORE_LISTENER_LISTENER_FILES_H_
