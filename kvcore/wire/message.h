// Requests and replies of the worker protocol as values: a dictionary with text keys that holds
// none, truth values, 64-bit integers, texts, lists and dictionaries. How they become bytes is in
// pickle.h, how bytes become a stream in frame.h.
//
// Threads, ownership: values.
#ifndef KVCORE_WIRE_MESSAGE_H_
#define KVCORE_WIRE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvcore/base/status.h"

namespace kv {

class Value {
 public:
  using List = std::vector<Value>;
  using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of the wire

  Value() = default;                             // none
  Value(bool v) : data_(v) {}                    // NOLINT: values convert from what they hold
  Value(std::int64_t v) : data_(v) {}            // NOLINT
  Value(int v) : data_(std::int64_t{v}) {}       // NOLINT
  Value(std::string v) : data_(std::move(v)) {}  // NOLINT
  Value(std::string_view v) : data_(std::string(v)) {}  // NOLINT
  Value(const char* v) : data_(std::string(v)) {}       // NOLINT
  Value(List v) : data_(std::move(v)) {}                // NOLINT
  Value(Dict v) : data_(std::move(v)) {}                // NOLINT

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  // Null when it holds something else.
  const bool* as_bool() const { return std::get_if<bool>(&data_); }
  const std::int64_t* as_int() const { return std::get_if<std::int64_t>(&data_); }
  const std::string* as_text() const { return std::get_if<std::string>(&data_); }
  const List* as_list() const { return std::get_if<List>(&data_); }
  const Dict* as_dict() const { return std::get_if<Dict>(&data_); }
  bool operator==(const Value&) const = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, std::string, List, Dict> data_;
};

using Message = Value::Dict;

// The field's value, or null.
const Value* find(const Message& message, std::string_view key);
// Typed fields; kProtocol says which field is missing or of another type. The second form of
// integer gives `fallback` when the field is absent.
Result<std::string> text_field(const Message& message, std::string_view key);
// The same without a copy, valid as long as the message: a peer may send a text of any length.
Result<std::string_view> text_view(const Message& message, std::string_view key);
Result<std::int64_t> integer_field(const Message& message, std::string_view key);
Result<std::int64_t> integer_field(const Message& message, std::string_view key,
                                   std::int64_t fallback);
Result<std::vector<std::int64_t>> integers_field(const Message& message, std::string_view key);

// {"status": "error", "message", "error_type"} and, if `phase` is given, "phase". The error_type is
// "map_quarantined" (kQuarantined: pages are lost until the end), "state_consistency" (the request
// does not fit the worker's state: unknown group, not mapped, another transaction) or
// "operation_failed" (everything else).
Message error_reply(const Status& status, std::string_view phase = {});

}  // namespace kv

#endif  // KVCORE_WIRE_MESSAGE_H_
