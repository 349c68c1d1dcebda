#include "fakes/card/config.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "fakes/card/cuda_abi.h"

namespace kv::card {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only, once
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Leaves `value` alone when the variable is absent or empty.
bool read_number(const char* name, std::uint64_t least, std::uint64_t most, std::uint64_t* value,
                 std::string* error) {
  const std::string_view text = environment(name);
  if (text.empty()) return true;
  std::uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc() && end == text.data() + text.size() && number >= least &&
      number <= most) {
    *value = number;
    return true;
  }
  *error = std::string(name) + "=" + std::string(text) + ": expected a whole number from " +
           std::to_string(least) + " to " + std::to_string(most);
  return false;
}

}  // namespace

bool read_config(Config* config, std::string* error) {
  config->directory = environment("KVDRILL_CARD");
  config->process = environment("KVDRILL_PROCESS");
  std::uint64_t devices = config->devices;
  if (!read_number("KVDRILL_CARD_DEVICES", 0, kMaxDevices, &devices, error)) return false;
  config->devices = static_cast<std::uint32_t>(devices);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 42;  // 4 TiB: more than any card
  return read_number("KVDRILL_CARD_BYTES", kPageSize, kMost, &config->device_bytes, error);
}

}  // namespace kv::card
