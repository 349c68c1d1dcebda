#include "harness/scenario/scenario_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/scenario/names.h"
#include "harness/scenario/units.h"

namespace kv::drill {

std::string to_string(const LoadError& error) {
  const Position& at = error.position;
  if (at.line == 0) return fmt::format("{}: {}", at.file, error.message);
  return fmt::format("{}:{}:{}: {}", at.file, at.line, at.column, error.message);
}

void Faults::add(Place place, std::string message) {
  const auto fault = std::make_pair(place, std::move(message));
  if (std::find(found_.begin(), found_.end(), fault) == found_.end()) found_.push_back(fault);
}

void Faults::add(const Node& value, std::string message) {
  if (value.refused) return;
  if (!value.parameter.empty()) {
    message += fmt::format(" [as parameter {}]", value.parameter);
  }
  add(value.place, std::move(message));
}

void Faults::merge(const Faults& other, const std::string& suffix) {
  for (const auto& [place, message] : other.found_) {
    const auto known = std::make_pair(place, message);
    if (std::find(found_.begin(), found_.end(), known) == found_.end()) {
      add(place, message + suffix);
    }
  }
}

std::vector<LoadError> Faults::sorted(std::string_view file) const {
  auto ordered = found_;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<LoadError> errors;
  for (auto& [place, message] : ordered) {
    errors.push_back({{std::string(file), place.line, place.column}, std::move(message)});
  }
  return errors;
}

bool expect_kind(const Node& value, Node::Kind kind, std::string_view what, Faults& faults) {
  if (value.is(kind)) return true;
  // "rank = 3" of a key, "a step is 3" of anything else.
  const char* is = what.find(' ') == std::string_view::npos ? "=" : "is";
  faults.add(value, fmt::format("{} {} {}, expected {}", what, is, shown(value), kind_name(kind)));
  return false;
}

std::optional<std::int64_t> read_duration(const Node& value, std::string_view what,
                                          Faults& faults) {
  if (value.is(Node::Kind::kInteger)) {
    faults.add(value, fmt::format("{} has no unit, expected a text such as \"{}ms\" or \"{}s\"",
                                  what, value.integer, value.integer));
    return std::nullopt;
  }
  if (!expect_kind(value, Node::Kind::kText, what, faults)) return std::nullopt;
  const auto parsed = parse_duration(value.text);
  if (parsed) return *parsed;
  faults.add(value, fmt::format("{}: {}", what, parsed.error()));
  return std::nullopt;
}

std::optional<std::int64_t> read_bytes(const Node& value, std::string_view what, Faults& faults) {
  if (value.is(Node::Kind::kInteger)) {
    if (value.integer == 0) return 0;  // needs no unit
    faults.add(value, fmt::format("{} has no unit, expected a text such as \"{}B\" or \"{}MiB\"",
                                  what, value.integer, value.integer));
    return std::nullopt;
  }
  if (!expect_kind(value, Node::Kind::kText, what, faults)) return std::nullopt;
  const auto parsed = parse_bytes(value.text);
  if (parsed) return *parsed;
  faults.add(value, fmt::format("{}: {}", what, parsed.error()));
  return std::nullopt;
}

Value read_value(const Node& value, Faults& faults) {
  switch (value.kind) {
    case Node::Kind::kBool:
      return Value(value.boolean);
    case Node::Kind::kInteger:
      return Value(value.integer);
    case Node::Kind::kReal:
      if (std::isfinite(value.real)) return Value(value.real);
      faults.add(value,
                 fmt::format("{} cannot be sent, expected a number that JSON has too", value.text));
      return Value();
    case Node::Kind::kText:
      return Value(value.text);
    case Node::Kind::kList: {
      Value::List items;
      for (const Node& item : value.list) items.push_back(read_value(item, faults));
      return Value(std::move(items));
    }
    case Node::Kind::kTable: {
      Value::Dict fields;
      for (const Entry& entry : value.table) {
        fields.emplace_back(entry.key, read_value(entry.value, faults));
      }
      return Value(std::move(fields));
    }
    default:
      faults.add(value, fmt::format("{} cannot be sent, expected true or false, a number, a text, "
                                    "a list or a table",
                                    kind_name(value.kind)));
      return Value();
  }
}

const Node* Fields::find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  return table_.find(key);
}

const Node* Fields::require(const std::string& key, std::string_view example) {
  const Node* value = find(key);
  if (value == nullptr) {
    faults_.add(table_, fmt::format("missing key \"{}\" {}, expected {}", key, where_, example));
  }
  return value;
}

std::optional<std::string> Fields::text(const std::string& key) {
  const Node* value = find(key);
  if (value == nullptr || !expect_kind(*value, Node::Kind::kText, key, faults_)) {
    return std::nullopt;
  }
  return value->text;
}

std::optional<std::string> Fields::required_text(const std::string& key, std::string_view example) {
  const Node* value = require(key, example);
  if (value == nullptr || !expect_kind(*value, Node::Kind::kText, key, faults_)) {
    return std::nullopt;
  }
  if (value->text.empty()) {
    faults_.add(*value, fmt::format("{} is empty, expected {}", key, example));
    return std::nullopt;
  }
  return value->text;
}

std::optional<bool> Fields::boolean(const std::string& key) {
  const Node* value = find(key);
  if (value == nullptr || !expect_kind(*value, Node::Kind::kBool, key, faults_)) {
    return std::nullopt;
  }
  return value->boolean;
}

std::optional<std::int64_t> Fields::integer(const std::string& key, std::int64_t least,
                                            std::int64_t most) {
  const Node* value = find(key);
  if (value == nullptr || !expect_kind(*value, Node::Kind::kInteger, key, faults_)) {
    return std::nullopt;
  }
  if (value->integer < least || value->integer > most) {
    faults_.add(*value,
                most == INT64_MAX
                    ? fmt::format("{} = {}, expected at least {}", key, value->integer, least)
                    : fmt::format("{} = {}, expected {} to {}", key, value->integer, least, most));
    return std::nullopt;
  }
  return value->integer;
}

std::optional<std::int64_t> Fields::duration(const std::string& key) {
  const Node* value = find(key);
  if (value == nullptr) return std::nullopt;
  return read_duration(*value, key, faults_);
}

std::optional<std::int64_t> Fields::bytes(const std::string& key) {
  const Node* value = find(key);
  if (value == nullptr) return std::nullopt;
  return read_bytes(*value, key, faults_);
}

std::optional<std::vector<std::string>> Fields::texts(const std::string& key) {
  const Node* value = list(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> all;
  for (const Node& item : value->list) {
    if (expect_kind(item, Node::Kind::kText, "an entry of " + key, faults_)) {
      all.push_back(item.text);
    }
  }
  return all;
}

std::optional<std::string> Fields::word(const std::string& key,
                                        const std::vector<std::string>& words) {
  const Node* value = find(key);
  if (value == nullptr || !expect_kind(*value, Node::Kind::kText, key, faults_)) {
    return std::nullopt;
  }
  if (std::find(words.begin(), words.end(), value->text) == words.end()) {
    faults_.add(*value,
                fmt::format("{} = \"{}\"{}", key, value->text, expected_one(value->text, words)));
    return std::nullopt;
  }
  return value->text;
}

const Node* Fields::table(const std::string& key) {
  const Node* value = find(key);
  if (value == nullptr || !expect_kind(*value, Node::Kind::kTable, key, faults_)) return nullptr;
  return value;
}

const Node* Fields::list(const std::string& key) {
  const Node* value = find(key);
  if (value == nullptr || !expect_kind(*value, Node::Kind::kList, key, faults_)) return nullptr;
  return value;
}

void Fields::finish() {
  for (const Entry& entry : table_.table) {
    if (std::find(known_.begin(), known_.end(), entry.key) == known_.end()) {
      faults_.add(entry.key_place, fmt::format("unknown key \"{}\" {}{}", entry.key, where_,
                                               expected_one(entry.key, known_)));
    }
  }
}

Place Fields::place(std::string_view key) const {
  const Node* value = table_.find(key);
  return value == nullptr ? table_.place : value->place;
}

}  // namespace kv::drill
