// What several parts of the harness do with files in the same way.
//
// Threads: any. Ownership: nothing passes; descriptors stay the caller's.
#ifndef HARNESS_FILES_H_
#define HARNESS_FILES_H_

#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

// mkdir -p, each folder for this user only; those that were not there are added to `made`, if it is
// given. 0 or an errno value.
int make_folders(const std::string& path, std::vector<std::string>* made = nullptr);

// Writes the whole text, also after signals. False: not all of it, errno says why.
bool write_all(int fd, std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_FILES_H_
