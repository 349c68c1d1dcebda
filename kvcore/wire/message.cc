#include "kvcore/wire/message.h"

#include "kvcore/wire/pickle.h"

namespace kv {
namespace {

const char* kind_of(const Value& value) {
  if (value.is_none()) return "none";
  if (value.as_bool() != nullptr) return "a truth value";
  if (value.as_int() != nullptr) return "an integer";
  if (value.as_text() != nullptr) return "a text";
  if (value.as_list() != nullptr) return "a list";
  return "a dictionary";
}

Status missing(std::string_view key, const char* expected) {
  return Status::error(Code::kProtocol, "message.field", key, 0,
                       std::string("missing; expected ") + expected);
}

Status mistyped(std::string_view key, const Value& value, const char* expected) {
  return Status::error(Code::kProtocol, "message.field", key, 0,
                       std::string("is ") + kind_of(value) + "; expected " + expected);
}

std::string_view error_type(Code code) {
  switch (code) {
    case Code::kQuarantined:
      return "map_quarantined";
    case Code::kFailedPrecondition:
    case Code::kNotFound:
    case Code::kAlreadyExists:
      return "state_consistency";
    default:
      return "operation_failed";
  }
}

}  // namespace

const Value* find(const Message& message, std::string_view key) {
  for (const auto& [name, value] : message) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<std::string_view> text_view(const Message& message, std::string_view key) {
  const Value* value = find(message, key);
  if (value == nullptr) return missing(key, "a text");
  if (const std::string* text = value->as_text()) return std::string_view(*text);
  return mistyped(key, *value, "a text");
}

Result<std::string> text_field(const Message& message, std::string_view key) {
  KV_ASSIGN_OR_RETURN(const std::string_view text, text_view(message, key));
  return std::string(text);
}

Result<std::int64_t> integer_field(const Message& message, std::string_view key) {
  const Value* value = find(message, key);
  if (value == nullptr) return missing(key, "an integer");
  if (const std::int64_t* integer = value->as_int()) return *integer;
  return mistyped(key, *value, "an integer");
}

Result<std::int64_t> integer_field(const Message& message, std::string_view key,
                                   std::int64_t fallback) {
  if (find(message, key) == nullptr) return fallback;
  return integer_field(message, key);
}

Result<std::vector<std::int64_t>> integers_field(const Message& message, std::string_view key) {
  static constexpr const char* kExpected = "a list of integers";
  const Value* value = find(message, key);
  if (value == nullptr) return missing(key, kExpected);
  const Value::List* list = value->as_list();
  if (list == nullptr) return mistyped(key, *value, kExpected);
  std::vector<std::int64_t> integers;
  integers.reserve(list->size());
  for (const Value& item : *list) {
    const std::int64_t* integer = item.as_int();
    if (integer == nullptr) {
      return Status::error(Code::kProtocol, "message.field", key, 0,
                           "item " + std::to_string(integers.size()) + " is " + kind_of(item) +
                               "; expected " + kExpected);
    }
    integers.push_back(*integer);
  }
  return integers;
}

Message error_reply(const Status& status, std::string_view phase) {
  Message reply{{"status", "error"},
                {"message", encodable(status.to_string())},
                {"error_type", Value(error_type(status.code()))}};
  if (!phase.empty()) reply.emplace_back("phase", Value(phase));
  return reply;
}

}  // namespace kv
