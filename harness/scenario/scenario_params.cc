#include "harness/scenario/scenario_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

#include "harness/scenario/names.h"

namespace kv::drill {
namespace {

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_letter_or_digit(char c) {
  return is_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

class Substitution {
 public:
  Substitution(const Parameters& values, std::set<std::string>& used, Faults& faults)
      : values_(values), used_(used), faults_(faults) {}

  Node apply(const Node& from) {
    Node to = from;
    if (from.is(Node::Kind::kText)) {
      if (from.text.find('$') != std::string::npos) text(from, to);
      return to;
    }
    for (Node& item : to.list) item = apply(item);
    for (Entry& entry : to.table) entry.value = apply(entry.value);
    return to;
  }

 private:
  const Node* lookup(const Node& at, const std::string& name) {
    const auto found = values_.find(name);
    if (found != values_.end()) {
      used_.insert(name);
      return found->second;
    }
    std::vector<std::string> known;
    for (const auto& [known_name, value] : values_) known.push_back(known_name);
    faults_.add(at, fmt::format("unknown parameter \"${}\"{}", name, expected_one(name, known)));
    // What was meant is used, so that a slip of the pen is one fault and not two.
    used_.insert(nearest(name, known));
    return nullptr;
  }

  void text(const Node& from, Node& to) {
    const std::string& text = from.text;
    if (text.front() == '$' && is_parameter_name(std::string_view(text).substr(1))) {
      const std::string name = text.substr(1);
      if (const Node* value = lookup(from, name)) {
        to = *value;
        to.parameter = name;
      } else {
        to.refused = true;
      }
      return;
    }
    to.text.clear();
    for (std::size_t i = 0; i < text.size();) {
      if (text[i] != '$') {
        to.text.push_back(text[i++]);
      } else if (i + 1 < text.size() && text[i + 1] == '$') {
        to.text.push_back('$');
        i += 2;
      } else {
        i = inside(from, i + 1, to);
      }
    }
  }

  // One parameter inside a longer text, whose name begins at `begin`; returns where it ends.
  std::size_t inside(const Node& from, std::size_t begin, Node& to) {
    std::size_t end = begin;
    if (end < from.text.size() && is_letter(from.text[end])) {
      while (end < from.text.size() && is_letter_or_digit(from.text[end])) ++end;
    }
    if (end == begin) {
      faults_.add(from,
                  "\"$\" without a parameter's name, expected \"$name\", or \"$$\" for a "
                  "dollar");
      return end;
    }
    const std::string name = from.text.substr(begin, end - begin);
    const Node* value = lookup(from, name);
    if (value == nullptr) return end;
    if (value->is(Node::Kind::kText)) {
      to.text += value->text;
    } else if (value->is(Node::Kind::kInteger) || value->is(Node::Kind::kBool)) {
      to.text += shown(*value);
    } else {
      faults_.add(from, fmt::format("parameter {} is {} and cannot be part of a text, expected a "
                                    "text, a number, true or false",
                                    name, kind_name(value->kind)));
    }
    return end;
  }

  const Parameters& values_;
  std::set<std::string>& used_;
  Faults& faults_;
};

}  // namespace

bool is_parameter_name(std::string_view text) {
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), is_letter_or_digit);
}

Node substitute(const Node& from, const Parameters& values, std::set<std::string>& used,
                Faults& faults) {
  return Substitution(values, used, faults).apply(from);
}

}  // namespace kv::drill
