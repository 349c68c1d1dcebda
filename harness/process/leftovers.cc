#include "harness/process/leftovers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace kv::drill {

namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return !entry.is_symlink(error) && entry.is_directory(error);
}

// A folder by the listener's rule: "kvcached-tp-<ipc>-<8 hex digits>".
bool is_socket_folder(std::string_view name, std::string_view ipc) {
  constexpr std::string_view kBegin = "kvcached-tp-";
  if (!name.starts_with(kBegin)) return false;
  name.remove_prefix(kBegin.size());
  if (!name.starts_with(ipc)) return false;
  name.remove_prefix(ipc.size());
  return name.size() == 9 && name[0] == '-' &&
         std::all_of(name.begin() + 1, name.end(),
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// A segment "<ipc>", that of another group "<ipc>_g<group>", either with an ending; a named
// semaphore is "sem." and its name. Not another run's, whose name only begins in the same way.
bool is_segment(std::string_view name, std::string_view ipc) {
  if (name.starts_with("sem.")) name.remove_prefix(4);
  if (!name.starts_with(ipc)) return false;
  name.remove_prefix(ipc.size());
  if (name.starts_with("_g")) {
    const auto rest = name.find_first_not_of("0123456789", 2);
    if (rest == 2 || name.size() == 2) return false;
    name = rest == std::string_view::npos ? std::string_view() : name.substr(rest);
  }
  return name.empty() || name[0] == '.';
}

template <class Fits>
void collect(const char* place, const Fits& fits, std::vector<std::string>* found) {
  std::error_code error;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!fits(entry->path().filename().string())) continue;
    found->push_back(entry->path().string() + (is_folder(*entry) ? "/" : ""));
  }
}

std::string in_proc(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

void list_below(const fs::path& folder, const std::string& prefix,
                std::vector<std::string>* found) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = prefix + entry->path().filename().string();
    if (is_folder(*entry)) {
      found->push_back(name + "/");
      list_below(entry->path(), name + "/", found);
    } else {
      found->push_back(name);
    }
  }
}

}  // namespace

std::vector<std::string> tree(const std::string& root) {
  std::vector<std::string> found;
  list_below(root, "", &found);
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> default_places(std::string_view ipc_name) {
  std::vector<std::string> found;
  if (ipc_name.empty()) return found;
  collect(
      "/tmp", [&](const std::string& name) { return is_socket_folder(name, ipc_name); }, &found);
  collect(
      "/dev/shm", [&](const std::string& name) { return is_segment(name, ipc_name); }, &found);
  std::sort(found.begin(), found.end());
  return found;
}

FileId identify(const std::string& path) {
  struct statx status {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME,
              &status) != 0) {
    return {};
  }
  FileId id{true, S_ISSOCK(status.stx_mode)};
  id.device = std::uint64_t{status.stx_dev_major} << 32 | status.stx_dev_minor;
  id.inode = status.stx_ino;
  if ((status.stx_mask & STATX_BTIME) != 0) {
    id.made_ns = status.stx_btime.tv_sec * 1'000'000'000 + status.stx_btime.tv_nsec;
  }
  return id;
}

std::vector<std::string> open_descriptors(pid_t pid) {
  std::vector<std::pair<int, std::string>> descriptors;
  std::error_code error;
  for (fs::directory_iterator entry(in_proc(pid, "fd"), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    std::error_code gone;
    const fs::path target = fs::read_symlink(entry->path(), gone);
    if (!gone) descriptors.emplace_back(number, name + " -> " + target.string());
  }
  std::sort(descriptors.begin(), descriptors.end());
  std::vector<std::string> lines;
  for (auto& [number, line] : descriptors) lines.push_back(std::move(line));
  return lines;
}

int thread_count(pid_t pid) {
  std::ifstream status(in_proc(pid, "status"));
  int threads = 0;
  char state = 'X';
  for (std::string word; status >> word;) {
    if (word == "State:") status >> state;
    if (word == "Threads:") status >> threads;
  }
  // A process that ended and was not reaped yet still counts its dead main thread.
  const bool ended = (state == 'Z' || state == 'X') && threads <= 1;
  return ended ? 0 : threads;
}

std::string remove_tree(const std::string& root) {
  const fs::path path = fs::path(root).lexically_normal();
  if (path.empty() || path == path.root_path()) return root + ": never removed";  // a slip
  std::error_code error;
  fs::remove_all(path, error);
  if (!error && !identify(root).exists) return {};
  return fmt::format(
      "{} cannot be removed: {}", root,
      error == std::errc::device_or_resource_busy ? "something is mounted in it" : error.message());
}

}  // namespace kv::drill
