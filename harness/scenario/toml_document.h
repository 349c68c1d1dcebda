// A TOML file as a tree of our own, with the place of every key and value. The one source file
// behind it is the only one that includes toml++ (header-only, slow to compile, and its tables
// forget the order in which keys were written).
//
// Threads: functions and values. Ownership: a Node owns what is below it.
#ifndef HARNESS_SCENARIO_TOML_DOCUMENT_H_
#define HARNESS_SCENARIO_TOML_DOCUMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace kv::drill {

// A place in the file, both from 1; the column counts characters.
struct Place {
  int line = 0;
  int column = 0;
  auto operator<=>(const Place&) const = default;
};

struct Entry;

struct Node {
  enum class Kind : std::uint8_t { kBool, kInteger, kReal, kText, kDate, kList, kTable };

  Kind kind = Kind::kTable;
  Place place;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string text;  // kText; kReal and kDate: as people would write it
  std::vector<Node> list;
  std::vector<Entry> table;  // in the order written
  // The parameter that this value came from; empty when it was written where it stands.
  std::string parameter;
  // A fault of it was reported already, and the value stands for nothing.
  bool refused = false;

  bool is(Kind what) const { return kind == what; }
  const Node* find(std::string_view key) const;  // null: no such key, or no table
};

struct Entry {
  std::string key;
  Place key_place;
  Node value;
};

// "a text", "a number", ...: for messages.
std::string_view kind_name(Node::Kind kind);
// The value in a few characters, as it would be written in TOML; long ones are cut.
std::string shown(const Node& node);

struct TomlError {
  Place place;
  std::string message;
};

// The root is a table. Refused besides bad TOML: a text over 1 MiB and a line over 20,000 bytes.
tl::expected<Node, TomlError> parse_toml(std::string_view text);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_TOML_DOCUMENT_H_
