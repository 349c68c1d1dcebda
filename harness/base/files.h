// What several parts of the harness do with files in the same way.
//
// Threads: any. Ownership: nothing passes; descriptors stay the caller's.
#ifndef HARNESS_BASE_FILES_H_
#define HARNESS_BASE_FILES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace kv::drill {

// The path from the root, without what says nothing in it ("//", "/./", a slash at the end). Links
// stay as they are, except where a ".." behind one needs to know what it is.
std::string plain_path(const std::string& path);

// mkdir -p, each folder for this user only; those that were not there are added to `made`, if it is
// given. 0 or an errno value.
int make_folders(const std::string& path, std::vector<std::string>* made = nullptr);

// Opens a file below the folder `at` (AT_FDCWD: `path` as it is) that a process may have replaced
// by anything: neither a pipe nor a device is waited for or written to, and no link is followed. A
// descriptor, closed on exec; -1, errno says why (EINVAL: it is no regular file).
int open_regular(int at, const std::string& path, int flags, unsigned mode = 0600);

// All that a regular file holds (links are followed), or what comes out of a pipe until its writers
// are gone if `or_pipe`; a pipe that nobody writes is empty. An error, to stand behind the path: it
// cannot be read, is something else, or holds more than `most` bytes.
tl::expected<std::string, std::string> read_file(const std::string& path, std::size_t most,
                                                 bool or_pipe = false);

// Writes the whole text, also after signals. False: not all of it, errno says why.
bool write_all(int fd, std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_BASE_FILES_H_
