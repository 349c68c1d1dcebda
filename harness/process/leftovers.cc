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

#include "harness/board/proc_stat.h"

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

bool fits(std::string_view name, const InstanceNames& names,
          bool (*is_named)(std::string_view name, std::string_view instance)) {
  if (!names.own.empty() && name.find(names.own) != std::string_view::npos) return true;
  return std::any_of(names.shared.begin(), names.shared.end(), [&](const std::string& instance) {
    return !instance.empty() && is_named(name, instance);
  });
}

// What tells an anonymous file from others: all of a kind have the same inode.
std::string own_id_of(const std::string& fdinfo) {
  std::ifstream file(fdinfo);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("eventfd-id:")) return line;
  }
  return {};
}

FileId identity_of(int at, const std::string& path, int flags) {
  struct statx status {};
  if (::statx(at, path.c_str(), flags, STATX_BASIC_STATS | STATX_BTIME, &status) != 0) return {};
  FileId id{true, S_ISSOCK(status.stx_mode)};
  id.device = std::uint64_t{status.stx_dev_major} << 32 | status.stx_dev_minor;
  id.inode = status.stx_ino;
  if ((status.stx_mask & STATX_BTIME) != 0) {
    id.made_ns = status.stx_btime.tv_sec * 1'000'000'000 + status.stx_btime.tv_nsec;
  }
  return id;
}

// Of the entries of a folder whose names are numbers, in their order.
std::vector<int> numbers_in(const std::string& folder) {
  std::vector<int> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number >= 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
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

std::map<std::string, FileId> default_places(const InstanceNames& names) {
  std::map<std::string, FileId> found;
  const auto collect = [&](const char* place, auto is_named) {
    std::error_code error;
    for (fs::directory_iterator entry(place, error), end; !error && entry != end;
         entry.increment(error)) {
      if (!fits(entry->path().filename().string(), names, is_named)) continue;
      const std::string path = entry->path().string();
      found[path + (is_folder(*entry) ? "/" : "")] = identify(path);
    }
  };
  collect("/tmp", is_socket_folder);
  collect("/dev/shm", is_segment);
  return found;
}

FileId identify(const std::string& path) {
  return identity_of(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}

std::string to_string(const OpenDescriptor& descriptor) {
  return fmt::format("{} -> {}", descriptor.number, descriptor.target);
}

std::vector<OpenDescriptor> open_descriptors(pid_t pid) {
  std::vector<OpenDescriptor> all;
  for (const int number : numbers_in(in_proc(pid, "fd"))) {
    const std::string link = in_proc(pid, "fd/") + std::to_string(number);
    std::error_code gone;
    OpenDescriptor one;
    one.number = number;
    one.target = fs::read_symlink(link, gone).string();
    if (gone) continue;
    one.file = identity_of(AT_FDCWD, link, AT_STATX_DONT_SYNC);
    if (one.target.starts_with("anon_inode:")) {
      one.own_id = own_id_of(in_proc(pid, "fdinfo/") + std::to_string(number));
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<LivingThread> living_threads(pid_t pid) {
  std::vector<LivingThread> all;
  for (const int tid : numbers_in(in_proc(pid, "task"))) {
    std::ifstream file(in_proc(pid, "task/") + std::to_string(tid) + "/stat");
    std::string text;
    if (!std::getline(file, text, '\0')) continue;
    const auto stat = parse_stat(text);
    // The main thread of a process that ended and was not reaped yet is there, and dead.
    if (!stat || stat->state == 'Z' || stat->state == 'X') continue;
    all.push_back({tid, std::string(start_of(*stat)), std::string(stat->name)});
  }
  return all;
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
