// A small file that several processes map and hold for life: whole before anybody can find it by
// its name, its room allocated so that no store into it can fail, and with byte locks that say
// which of its users lives.
//
// The locks are open-file-description locks: the kernel drops them with the last descriptor, also
// after SIGKILL, and a process that is merely stopped keeps them. A forked child shares them.
//
// Threads: make it on one; the mapping may then be used from any, the locks from one at a time.
// Ownership: owns descriptor and mapping, not the name: nothing is unlinked by itself.
#ifndef KVCORE_CACHE_SHARED_FILE_H_
#define KVCORE_CACHE_SHARED_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

#include "kvcore/base/status.h"
#include "kvcore/base/unique_fd.h"

namespace kv {

class SharedFile {
 public:
  // A new file of `size` bytes, zero but for what `fill` writes. kAlreadyExists: the name is taken.
  // Byte 0 is locked from before the name appears, when `lock` says so.
  static Result<SharedFile> create(const std::string& path, std::size_t size, bool lock,
                                   const std::function<void(void*)>& fill);
  // kNotFound: no such file. kProtocol: it is not a regular file of this size.
  static Result<SharedFile> open(const std::string& path, std::size_t size);

  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  ~SharedFile();

  void* data() const { return data_; }
  const std::string& path() const { return path_; }
  // Whether its name still denotes this file.
  bool has_its_name() const;
  // True: the byte is this description's. Never waits.
  bool try_lock(off_t byte);
  void unlock(off_t byte);
  // Removes the name, if it still denotes this file.
  Status unlink();

 private:
  SharedFile(std::string path, UniqueFd fd, void* data, std::size_t size);
  static Result<SharedFile> map(std::string path, UniqueFd fd, std::size_t size);

  std::string path_;
  UniqueFd fd_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kv

#endif  // KVCORE_CACHE_SHARED_FILE_H_
