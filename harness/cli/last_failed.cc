#include "harness/cli/last_failed.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "harness/base/json.h"
#include "harness/report/report.h"

namespace kv::drill {
namespace {


// The same on every machine and with every library (FNV-1a): it is part of a file's name.
std::uint64_t hash(const std::string& text) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}

}  // namespace

std::string last_failed_path(const std::string& cache_folder, const std::string& folder) {
  return fmt::format("{}/last-failed/{:016x}.json", cache_folder, hash(folder));
}

tl::expected<std::set<std::string>, std::string> read_last_failed(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::set<std::string>();
  std::ifstream file(path, std::ios::binary);
  const Json json = try_parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  const auto failed = json.is_object() ? json.find("failed") : json.end();
  std::set<std::string> names;
  bool good = json.is_object() && failed != json.end() && failed->is_array();
  if (good) {
    for (const Json& name : *failed) {
      good = good && name.is_string();
      if (name.is_string()) names.insert(name.get<std::string>());
    }
  }
  if (good) return names;
  return tl::unexpected(fmt::format(
      "{}: expected {{\"failed\": [names]}} as kvdrill wrote it; it can be removed", path));
}

bool write_last_failed(const std::string& path, const std::string& folder,
                       const std::set<std::string>& names, std::string* why) {
  if (names.empty()) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) *why = fmt::format("cannot remove {}: {}", path, error.message());
    return !error;
  }
  const Json json = {{"folder", folder}, {"failed", names}};
  return write_file(path, dump_json(json, 1) + "\n", why);
}

}  // namespace kv::drill
