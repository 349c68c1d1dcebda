#include <string>

#include "kvcore/runtime/runtime.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

// Bytes; the length of a frame is a signed 32-bit number.
constexpr std::uint32_t kBodyLimit = 0x7fffffff;

Status wrong(std::string_view field, const std::string& value, std::string_view expected) {
  return Status::error(Code::kInvalidArgument, "config", field, 0,
                       "is " + value + ", expected " + std::string(expected));
}

std::string quoted(const std::string& text) {
  return "\"" + text + "\"";
}

}  // namespace

Status RuntimeConfig::validate() const {
  if (driver_path.empty()) return wrong("driver_path", quoted(driver_path), "a library's path");
  if (device < 0) return wrong("device", std::to_string(device), "0 or more");
  if (ipc_name.empty() || ipc_name != sanitize_ipc_name(ipc_name)) {
    return wrong("ipc_name", quoted(ipc_name),
                 "1 to " + std::to_string(kIpcNameLimit) + " of letters, digits, '_', '-'");
  }
  if (socket_root.empty() || socket_root.front() != '/') {
    return wrong("socket_root", quoted(socket_root), "an absolute path");
  }
  constexpr std::int64_t kIndexMax = 1 << 20;
  if (rank < 0 || rank > kIndexMax) {
    return wrong("rank", std::to_string(rank), "0 to " + std::to_string(kIndexMax));
  }
  if (stage < 0 || stage > kIndexMax) {
    return wrong("stage", std::to_string(stage), "0 to " + std::to_string(kIndexMax));
  }
  if (drain_limit <= Nanos::zero()) {
    return wrong("drain_limit", std::to_string(drain_limit.count()) + " ns", "more than 0");
  }
  if (max_body < 1 || max_body > kBodyLimit) {
    return wrong("max_body", std::to_string(max_body), "1 to " + std::to_string(kBodyLimit));
  }
  const auto place =
      socket_place(socket_root, ipc_name, static_cast<int>(rank), static_cast<int>(stage));
  return place.status();
}

}  // namespace kv
