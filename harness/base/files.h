// What several parts of the harness do with files in the same way.
//
// Threads: any. Ownership: nothing passes; descriptors stay the caller's.
#ifndef HARNESS_BASE_FILES_H_
#define HARNESS_BASE_FILES_H_

#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

// mkdir -p, each folder for this user only; those that were not there are added to `made`, if it is
// given. 0 or an errno value.
int make_folders(const std::string& path, std::vector<std::string>* made = nullptr);

// Opens a file below the folder `at` (AT_FDCWD: `path` as it is) that a process may have replaced
// by anything: neither a pipe nor a device is waited for or written to, and no link is followed. A
// descriptor, closed on exec; -1, errno says why (EINVAL: it is no regular file).
int open_regular(int at, const std::string& path, int flags, unsigned mode = 0600);

// Writes the whole text, also after signals. False: not all of it, errno says why.
bool write_all(int fd, std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_BASE_FILES_H_
