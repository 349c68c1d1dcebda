#include "harness/cli/last_failed.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/report/report.h"

namespace kv::drill {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

// The same on every machine and with every library (FNV-1a): it is part of a file's name.
std::uint64_t hash(const std::string& text) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}

std::optional<std::set<std::string>> names_in(std::string_view text) {
  const Json json = try_parse_json(text);
  const auto failed = json.is_object() ? json.find("failed") : json.end();
  if (!json.is_object() || failed == json.end() || !failed->is_array()) return std::nullopt;
  std::set<std::string> names;
  for (const Json& name : *failed) {
    if (!name.is_string()) return std::nullopt;
    names.insert(name.get<std::string>());
  }
  return names;
}

bool is_memory(std::string_view text) {
  return names_in(text).has_value();
}

}  // namespace

std::string last_failed_path(const std::string& cache_folder, const std::string& folder) {
  return fmt::format("{}/last-failed/{:016x}.json", cache_folder, hash(folder));
}

tl::expected<std::set<std::string>, std::string> read_last_failed(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::set<std::string>();
  const auto text = read_file(path, kMostBytes);
  if (!text) return tl::unexpected(fmt::format("{}: {}", path, text.error()));
  if (auto names = names_in(*text)) return *std::move(names);
  return tl::unexpected(fmt::format(
      "{}: expected {{\"failed\": [names]}} as kvdrill wrote it; it can be removed", path));
}

bool write_last_failed(const std::string& path, const std::string& folder,
                       const std::set<std::string>& names, std::string* why) {
  if (names.empty()) {
    *why = why_not_replaced(path, is_memory);
    if (!why->empty()) return false;
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) *why = fmt::format("cannot remove {}: {}", path, error.message());
    return !error;
  }
  const Json json = {{"folder", folder}, {"failed", names}};
  return write_file(path, dump_json(json, 1) + "\n", is_memory, why);
}

}  // namespace kv::drill
