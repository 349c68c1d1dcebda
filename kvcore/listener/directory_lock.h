// The lock on a directory under which sockets in it are made and removed, by the starts and stops
// of all processes. The kernel gives it up for a process that dies.
//
// Whoever waits for it does so on the engine's clock: it is woken when somebody gives the lock up
// or dies with it. What has it for longer than that is named.
//
// Threads: a value, one thread at a time. Ownership: borrows the directory's descriptor, which must
// outlive it.
#ifndef KVCORE_LISTENER_DIRECTORY_LOCK_H_
#define KVCORE_LISTENER_DIRECTORY_LOCK_H_

#include <string>
#include <utility>

#include "kvcore/base/clock.h"
#include "kvcore/base/status.h"

namespace kv {

class DirectoryLock {
 public:
  // Takes it, at once or until `deadline`. kDeadline: somebody else had it all the time; the text
  // says which process. `directory`: open for reading, and locked by nobody else through this
  // descriptor. `path`: what people call it.
  static Result<DirectoryLock> take(int directory, const std::string& path, Clock& clock,
                                    Time deadline);
  DirectoryLock(DirectoryLock&& other) noexcept : directory_(std::exchange(other.directory_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int directory) : directory_(directory) {}

  int directory_;
};

}  // namespace kv

#endif  // KVCORE_LISTENER_DIRECTORY_LOCK_H_
