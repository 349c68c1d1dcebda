// Which drills did not pass when they last ran, remembered from run to run: for --last-failed. One
// file for each folder that kvdrill is started in, below the user's cache folder.
//
// Threads: the calling thread only. Ownership: values.
#ifndef HARNESS_CLI_LAST_FAILED_H_
#define HARNESS_CLI_LAST_FAILED_H_

#include <set>
#include <string>
#include <tl/expected.hpp>

namespace kv::drill {

// The file of those who are started in `folder`.
std::string last_failed_path(const std::string& cache_folder, const std::string& folder);

// Full names of drills; none when there is no file. An error says what is wrong with the file.
tl::expected<std::set<std::string>, std::string> read_last_failed(const std::string& path);

// No names: the file is removed. False with `why` when it cannot be written.
bool write_last_failed(const std::string& path, const std::string& folder,
                       const std::set<std::string>& names, std::string* why);

}  // namespace kv::drill

#endif  // HARNESS_CLI_LAST_FAILED_H_
