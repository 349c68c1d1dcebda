// What a listener has on disk: its socket file and the private directories that lead to it.
//
// Only what a start made is ever closed to others, changed or removed. The root is opened once, as
// the user wrote it (it may be a link, or lie behind one); from there everything is reached through
// open descriptors, no link is followed, and what is removed is known by device and inode, under
// the lock of its directory that every start takes (directory_lock.h).
//
// All workers of an instance share its directory, and the last to leave removes it, whoever came
// first. So that all of them know that one of them made it, and no user, it is made with the sticky
// bit, which means nothing else in a directory that only its owner may write to. One without it is
// used as it is and stays.
//
// Threads: one at a time. Ownership: owns the file and, as long as they are empty, the directories
// below the root that a start made; remove() gives them back, the destructor leaves them alone.
#ifndef KVCORE_LISTENER_LISTENER_FILES_H_
#define KVCORE_LISTENER_LISTENER_FILES_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcore/base/clock.h"
#include "kvcore/base/status.h"
#include "kvcore/base/unique_fd.h"
#include "kvcore/listener/directory_lock.h"

namespace kv {

class SocketFile {
 public:
  struct Bound;
  // Whose file it is, and how long it may wait for the lock of a directory.
  struct Turn {
    std::int64_t generation = 0;
    Clock& clock;
    Time deadline;
  };
  // Makes the directories between `root` (it must exist) and the socket, mode 01700, and binds a
  // listening, non-blocking socket to `path`. A socket file that nobody listens on is replaced;
  // anything else at the path is kAlreadyExists. kFailedPrecondition: a directory on the way
  // belongs to another user, or others may write into it. kDeadline: another start or stop was at
  // work in the directory for as long as the turn waits. On failure nothing that was made here is
  // left, and everything else is as it was.
  static Result<Bound> create(const std::string& path, const std::string& root, const Turn& turn);

  // Unlinks the socket if the path still is the one that create() bound, then removes the
  // directories below the root that a start made and that are empty, the deepest first. What is
  // gone already is fine, and so is a directory in which somebody else has something. Repeatable:
  // what failed is tried again; kDeadline as above. The listening socket must still be open: an
  // open socket keeps its inode number from being given to another file.
  Status remove(const Turn& turn);

 private:
  // A directory on the way, the outermost first. Open, so its inode number stays its own.
  struct Directory {
    std::string name, path;
    UniqueFd fd;
    bool made_here = false;  // by this create()
    bool made = false;       // by some start
  };

  Status enter(const std::string& name);
  Status bind_below(const std::vector<std::string>& names, int socket, const Turn& turn);
  Status clear_stale() const;
  Status unlink_own(const Turn& turn);
  // False: it stays.
  Result<bool> remove_directory(std::size_t depth, const Turn& turn);
  // Each directory under its lock, the socket's own without a gap between the two.
  Status unlink_and_remove(const Turn& turn);
  // None: it was left out.
  Result<std::optional<DirectoryLock>> lock_for_removal(std::size_t depth, const Turn& turn) const;
  // The directory with this many directories before it; 0: the root.
  int at_depth(std::size_t depth) const {
    return depth == 0 ? root_.get() : directories_[depth - 1].fd.get();
  }
  int innermost() const { return at_depth(directories_.size()); }

  const std::string& path_at(std::size_t depth) const {
    return depth == 0 ? root_path_ : directories_[depth - 1].path;
  }

  std::string path_, name_;  // the socket's
  std::string root_path_;    // for people, without a slash at its end
  UniqueFd root_;            // none: everything was removed
  std::vector<Directory> directories_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool bound_ = false;  // and not unlinked yet
};

struct SocketFile::Bound {
  SocketFile file;
  UniqueFd listening;
};

}  // namespace kv

#endif  // KVCORE_LISTENER_LISTENER_FILES_H_
