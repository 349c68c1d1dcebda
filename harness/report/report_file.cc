// Writing what a user asked for at a path of the user's, without harm to what others have there.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "harness/base/files.h"
#include "harness/report/report.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostReplaced = std::size_t{1} << 30;
constexpr int kParts = 100;

std::error_code last_error() {
  return {errno, std::generic_category()};
}

std::error_code write_and_close(int fd, std::string_view text) {
  std::error_code error;
  if (!write_all(fd, text)) error = last_error();
  if (::close(fd) != 0 && !error) error = last_error();
  return error;
}

// What is no regular file. A pipe that nobody reads is not waited for, but the reader of one is.
std::error_code write_through(const fs::path& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return last_error();
  ::fcntl(fd, F_SETFL, 0);
  return write_and_close(fd, text);
}

// By a file beside it that nobody had before, so that nobody ever reads half of it.
std::error_code replace_whole(const fs::path& path, std::string_view text) {
  fs::path part;
  int fd = -1;
  for (int i = 0; i < kParts && fd < 0; ++i) {
    part = fmt::format("{}.{}.part", path.string(), i);
    fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) return last_error();
  std::error_code error = write_and_close(fd, text);
  if (!error) fs::rename(part, path, error);
  std::error_code ignored;
  if (error) fs::remove(part, ignored);
  return error;
}

}  // namespace

std::string why_not_replaced(const std::string& path, bool (*ours)(std::string_view)) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const auto there = read_file(path, kMostReplaced);
  if (!there) return fmt::format("{}: {}", path, there.error());
  if (there->empty() || ours(*there)) return {};
  return fmt::format("{} was not written by kvdrill and stays as it is, expected another path",
                     path);
}

bool write_file(const std::string& path, std::string_view text, bool (*ours)(std::string_view),
                std::string* why) {
  *why = why_not_replaced(path, ours);
  if (!why->empty()) return false;
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  const fs::path target = error ? fs::path(path) : resolved;
  error.clear();
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
  if (!error) {
    std::error_code unknown;
    const bool whole = !fs::exists(target, unknown) || fs::is_regular_file(target, unknown);
    error = whole ? replace_whole(target, text) : write_through(target, text);
  }
  if (error) *why = fmt::format("cannot write {}: {}", path, error.message());
  return !error;
}

}  // namespace kv::drill
