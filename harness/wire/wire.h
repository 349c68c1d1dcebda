// The worker protocol as the harness speaks it: a value, its pickle, and the frame around it.
// Independent of kvcore on purpose (the harness judges processes, it shares no code with them);
// both sides are tested against the same byte vectors.
//
// Threads: values and functions only. Ownership: a Value owns what is in it.
#ifndef HARNESS_WIRE_WIRE_H_
#define HARNESS_WIRE_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace kv::drill {

// What a request, a reply or a command's arguments can hold: none, a truth value, a 64-bit integer,
// a number with a point, a text (UTF-8), a list, or a dictionary with text keys in the order given.
struct Value {
  using List = std::vector<Value>;
  using Dict = std::vector<std::pair<std::string, Value>>;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Dict> data;

  Value() = default;
  Value(bool v) : data(v) {}                      // NOLINT
  Value(std::int64_t v) : data(v) {}              // NOLINT
  Value(int v) : data(std::int64_t{v}) {}         // NOLINT
  Value(double v) : data(v) {}                    // NOLINT
  Value(std::string v) : data(std::move(v)) {}    // NOLINT
  Value(const char* v) : data(std::string(v)) {}  // NOLINT
  Value(List v) : data(std::move(v)) {}           // NOLINT
  Value(Dict v) : data(std::move(v)) {}           // NOLINT

  // In wire.cc: g++ 12 sees uninitialised members in inlined moves of such a variant, wrongly.
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();

  bool operator==(const Value&) const = default;
  const Value* find(std::string_view key) const;  // null: not a dictionary, or no such key
};

// {"status": "success", "created": true}, on one line: for people, and for arguments of commands.
// Bytes of a text that are not UTF-8 become U+FFFD; what is no number, or endless, becomes null.
std::string to_json(const Value& value);
// JSON text to a Value; why not, otherwise. Integers beyond 64 bits, doubled keys and more than 64
// levels are refused.
tl::expected<Value, std::string> from_json(std::string_view text);

// Protocol 4, byte for byte as CPython's pickle.dumps(value, protocol=4) for values of these kinds.
std::string pickle(const Value& value);
// Decodes protocols 2 to 5 of the same kinds; an error says at which byte and what. Whatever the
// bytes are: nothing is run, depth (64) and number of values (1,000,000) are bounded.
tl::expected<Value, std::string> unpickle(std::string_view bytes);

// 4 bytes big-endian length, then the body.
std::string frame(std::string_view body);

// Whether every field of `wanted` is in `got` with the same value (dictionaries by field, the rest
// equal). On a difference `why` says the first one.
bool matches(const Value& wanted, const Value& got, std::string* why);

}  // namespace kv::drill

#endif  // HARNESS_WIRE_WIRE_H_
