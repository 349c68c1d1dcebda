#include "kvcore/base/status.h"

#include <array>
#include <system_error>
#include <utility>

namespace kv {
namespace {

constexpr std::array<std::pair<Code, std::string_view>, 14> kNames{{
    {Code::kOk, "ok"},
    {Code::kOutOfMemory, "out_of_memory"},
    {Code::kInvalidArgument, "invalid_argument"},
    {Code::kFailedPrecondition, "failed_precondition"},
    {Code::kNotFound, "not_found"},
    {Code::kAlreadyExists, "already_exists"},
    {Code::kDeadline, "deadline"},
    {Code::kCancelled, "cancelled"},
    {Code::kUnavailable, "unavailable"},
    {Code::kDriver, "driver"},
    {Code::kSystem, "system"},
    {Code::kProtocol, "protocol"},
    {Code::kQuarantined, "quarantined"},
    {Code::kInternal, "internal"},
}};

constexpr std::size_t kMost = 1024, kHead = 640, kTail = 256;

// What a sentence quotes may be anybody's, and of any length.
std::string bounded(std::string_view text) {
  if (text.size() <= kMost) return std::string(text);
  std::string kept(text.substr(0, kHead));
  kept += " ... (" + std::to_string(text.size() - kHead - kTail) + " bytes left out) ... ";
  kept += text.substr(text.size() - kTail);
  return kept;
}

}  // namespace

std::string_view code_name(Code code) {
  for (const auto& [value, name] : kNames) {
    if (value == code) return name;
  }
  return "unknown";
}

bool code_from_name(std::string_view name, Code* code) {
  for (const auto& [value, known] : kNames) {
    if (known == name) {
      *code = value;
      return true;
    }
  }
  *code = Code::kOk;
  return false;
}

Status Status::error(Code code, std::string_view operation, std::string_view object,
                     std::int64_t native, std::string_view text) {
  Status status;
  // kOk is no failure: a caller that passes it has lost its reason, and that is what we say.
  status.detail_ = std::make_shared<const Detail>(Detail{code == Code::kOk ? Code::kInternal : code,
                                                         native, std::string(operation),
                                                         bounded(object), bounded(text)});
  return status;
}

Status Status::system(std::string_view operation, std::string_view object, int errno_value) {
  return error(Code::kSystem, operation, object, errno_value,
               std::generic_category().message(errno_value));
}

std::string_view Status::operation() const {
  return ok() ? std::string_view() : std::string_view(detail_->operation);
}
std::string_view Status::object() const {
  return ok() ? std::string_view() : std::string_view(detail_->object);
}
std::string_view Status::text() const {
  return ok() ? std::string_view() : std::string_view(detail_->text);
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string line = detail_->operation;
  if (!detail_->object.empty()) line += ": " + detail_->object;
  line += ": ";
  line += code_name(detail_->code);
  if (detail_->native != 0) line += " (" + std::to_string(detail_->native) + ")";
  if (!detail_->text.empty()) line += ": " + detail_->text;
  return line;
}

}  // namespace kv
