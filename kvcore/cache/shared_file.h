// A small file that several processes share: whole before anybody can find it by its name, and with
// byte locks that say which of its users lives. It is read and written through its descriptor and
// never mapped, so that whoever cuts it off ends nobody: a read then says so.
//
// Its folder is resolved once, when it is made or opened: what happens to the path afterwards
// concerns it no more. No link is followed in its place.
//
// The locks are open-file-description locks: the kernel drops them with the last descriptor, also
// after SIGKILL, and a process that is merely stopped keeps them. A forked child shares them.
//
// Threads: reads and writes from any thread, the locks from one at a time. What is written before
// a write is seen by whoever reads after having read that.
// Ownership: owns its descriptors, not the name: nothing is unlinked by itself.
#ifndef KVCORE_CACHE_SHARED_FILE_H_
#define KVCORE_CACHE_SHARED_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "kvcore/base/status.h"
#include "kvcore/base/unique_fd.h"

namespace kv {

class SharedFile {
 public:
  enum class Owner { kAnybody, kThisUser };

  // A new file of this contents, for this user alone. kAlreadyExists: the name is taken. Byte 0 is
  // locked from before the name appears, when `lock` says so. A kill in the middle leaves nothing:
  // the file has no name before it is whole. kFailedPrecondition: its file system has no files
  // without a name.
  static Result<SharedFile> create(const std::string& path, std::string_view contents, bool lock);
  // kNotFound: no such file. kProtocol: it is not a regular file of this size.
  // kFailedPrecondition: it belongs to somebody else than `owner`.
  static Result<SharedFile> open(const std::string& path, std::size_t size, Owner owner);

  const std::string& path() const { return path_; }
  // kProtocol: it ends before that, so somebody has cut it off.
  Status read(std::size_t at, void* to, std::size_t bytes) const;
  // What was cut off before `at` reads as zeros from then on.
  Status write(std::size_t at, const void* from, std::size_t bytes);
  // Whether its name still denotes this file.
  bool has_its_name() const;
  // True: the byte is this description's. Never waits.
  bool try_lock(off_t byte);
  void unlock(off_t byte);
  // The lock of the whole file that deployed tools take (flock, exclusive). Never waits.
  bool try_lock_whole();
  void unlock_whole();
  // Removes the name, if it still denotes this file.
  Status unlink();

 private:
  SharedFile(std::string path, UniqueFd folder);
  static Result<SharedFile> in_folder(const std::string& path);
  Status make(std::string* temporary);
  Status give_name(const std::string& temporary);

  std::string path_, name_;
  UniqueFd folder_, fd_;
};

}  // namespace kv

#endif  // KVCORE_CACHE_SHARED_FILE_H_
