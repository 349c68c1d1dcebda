#include "fakes/worker/arguments.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>

namespace kv::worker {
namespace {

using Json = nlohmann::json;

bool is_number(const Json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
}

struct Kind {
  std::string_view name, words;
  bool (*holds)(const Json&);
};
constexpr std::array<Kind, 6> kKinds{{
    {"number", "a whole number", is_number},
    {"numbers", "a list of whole numbers",
     [](const Json& value) {
       return value.is_array() && std::all_of(value.begin(), value.end(), is_number);
     }},
    {"truth", "true or false", [](const Json& value) { return value.is_boolean(); }},
    {"text", "a text", [](const Json& value) { return value.is_string(); }},
    {"list", "a list", [](const Json& value) { return value.is_array(); }},
    {"table", "a table", [](const Json& value) { return value.is_object(); }},
}};

const Kind& kind_of(std::string_view name) {
  return *std::find_if(kKinds.begin(), kKinds.end() - 1,
                       [name](const Kind& kind) { return kind.name == name; });
}

// Cuts off and returns what stands before the separator, or all.
std::string_view cut(std::string_view& text, std::string_view separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(std::min(end + separator.size(), text.size()));
  return head;
}

}  // namespace

std::string wrong_arguments(const Json& arguments, std::string_view takes) {
  const std::string all = takes.empty() ? "none" : "{" + std::string(takes) + "}";
  std::set<std::string> known;
  while (!takes.empty()) {
    std::string_view kind = cut(takes, ", ");
    std::string name(cut(kind, ": "));
    const bool optional = name.ends_with('?');
    if (optional) name.pop_back();
    const auto given = arguments.find(name);
    known.insert(name);
    if (given == arguments.end()) {
      if (!optional) return "argument \"" + name + "\" is missing, expected " + all;
      continue;
    }
    const Kind& wanted = kind_of(kind.empty() ? "number" : kind);
    if (!wanted.holds(*given)) {
      return name + " = " + given->dump(-1, ' ', false, Json::error_handler_t::replace) +
             ", expected " + std::string(wanted.words);
    }
  }
  for (const auto& [name, value] : arguments.items()) {
    if (!known.contains(name)) return "unknown argument \"" + name + "\", expected " + all;
  }
  return {};
}

}  // namespace kv::worker
