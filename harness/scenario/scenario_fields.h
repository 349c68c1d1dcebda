// What every part of the loader shares: the list of faults, and a reader of one table that knows
// which keys it was asked for and so can refuse the rest.
//
// Threads, ownership: one load at a time per Faults; a Fields keeps references to both.
#ifndef HARNESS_SCENARIO_SCENARIO_FIELDS_H_
#define HARNESS_SCENARIO_SCENARIO_FIELDS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/scenario/loader.h"
#include "harness/scenario/toml_document.h"
#include "harness/wire/wire.h"

namespace kv::drill {

class Faults {
 public:
  void add(Place place, std::string message);
  // At a value; says so when the value came from a parameter. Nothing for one that was refused.
  void add(const Node& value, std::string message);
  std::size_t size() const { return found_.size(); }
  bool empty() const { return found_.empty(); }
  // Takes over the faults of another list that are not here yet, with `suffix` behind each.
  void merge(const Faults& other, const std::string& suffix);
  // In the order of their places, each once.
  std::vector<LoadError> sorted(std::string_view file) const;

 private:
  std::vector<std::pair<Place, std::string>> found_;
};

class Fields {
 public:
  // `where`: "in [drill]", "in a wait step": ends a message about a missing or unknown key.
  Fields(const Node& table, std::string where, Faults& faults)
      : table_(table), where_(std::move(where)), faults_(faults) {}

  // Each makes `key` a known one. Unset: absent or wrong; what is wrong was reported.
  const Node* find(const std::string& key);
  const Node* require(const std::string& key, std::string_view example);
  std::optional<std::string> text(const std::string& key);
  std::optional<std::string> required_text(const std::string& key, std::string_view example);
  std::optional<bool> boolean(const std::string& key);
  std::optional<std::int64_t> integer(const std::string& key, std::int64_t least,
                                      std::int64_t most);
  std::optional<std::int64_t> duration(const std::string& key);
  std::optional<std::int64_t> bytes(const std::string& key);
  std::optional<std::vector<std::string>> texts(const std::string& key);
  // One of a few words.
  std::optional<std::string> word(const std::string& key, const std::vector<std::string>& words);
  // A table of `wanted` kind, or null.
  const Node* table(const std::string& key);
  const Node* list(const std::string& key);

  // Reports every key that nobody asked for.
  void finish();

  const Node& node() const { return table_; }
  // Of the value of `key`; of the table when the key is absent.
  Place place(std::string_view key) const;

 private:
  const Node& table_;
  std::string where_;
  Faults& faults_;
  std::vector<std::string> known_;
};

// The value is of that kind; if not, says so.
bool expect_kind(const Node& value, Node::Kind kind, std::string_view what, Faults& faults);
std::optional<std::int64_t> read_duration(const Node& value, std::string_view what, Faults& faults);
std::optional<std::int64_t> read_bytes(const Node& value, std::string_view what, Faults& faults);
// What a request, a reply or a command's arguments hold. Refuses dates and broken numbers.
Value read_value(const Node& value, Faults& faults);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_SCENARIO_FIELDS_H_
