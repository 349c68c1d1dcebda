#include "harness/wire/wire.h"

namespace kv::drill {

namespace {

// Says where two values differ: `path` leads there from the outermost dictionary.
bool compare(const Value& wanted, const Value& got, const std::string& path, std::string* why) {
  const auto* fields = std::get_if<Value::Dict>(&wanted.data);
  if (fields == nullptr || !std::holds_alternative<Value::Dict>(got.data)) {
    if (wanted == got) return true;
    if (why != nullptr) {
      *why = (path.empty() ? std::string() : path + ": ") + "expected " + to_json(wanted) +
             ", got " + to_json(got);
    }
    return false;
  }
  for (const auto& [key, value] : *fields) {
    const std::string below = path.empty() ? key : path + "." + key;
    const Value* there = got.find(key);
    if (there == nullptr) {
      if (why != nullptr) {
        *why = below + ": expected " + to_json(value) + ", got no such field in " + to_json(got);
      }
      return false;
    }
    if (!compare(value, *there, below, why)) return false;
  }
  return true;
}

}  // namespace

Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

const Value* Value::find(std::string_view key) const {
  const auto* fields = std::get_if<Dict>(&data);
  if (fields == nullptr) return nullptr;
  for (const auto& [name, value] : *fields) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string frame(std::string_view body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::string out;
  out.reserve(4 + body.size());
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>((length >> shift) & 0xff));
  }
  out.append(body);
  return out;
}

bool matches(const Value& wanted, const Value& got, std::string* why) {
  return compare(wanted, got, "", why);
}

}  // namespace kv::drill
