#include "harness/scenario/toml_document.h"

namespace kv::drill {
namespace {
struct ParserGaveUp {};
[[noreturn]] void give_up() {
  throw ParserGaveUp();
}
}  // namespace
}  // namespace kv::drill

// Version 3.3 asserts where it should report a fault ("[$]", a header without a name), and without
// its assertions it runs on into undefined behaviour. So they are kept in every build, and throw.
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : ::kv::drill::give_up())
#define TOML_EXCEPTIONS 1
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 64
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kv::drill {
namespace {

constexpr std::size_t kLongestText = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = 20'000;  // also bounds the depth of a dotted key
constexpr int kDeepest = 100;

Place place_of(const toml::source_region& region, Place otherwise) {
  if (region.begin.line == 0) return otherwise;
  return {static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

template <typename T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

class Converter {
 public:
  Node convert(const toml::node& from, Place otherwise, int depth) {
    Node to;
    to.place = place_of(from.source(), otherwise);
    if (depth > kDeepest) {
      if (!too_deep_) too_deep_ = TomlError{to.place, "nested too deep"};
      return to;
    }
    switch (from.type()) {
      case toml::node_type::boolean:
        to.kind = Node::Kind::kBool;
        to.boolean = from.as_boolean()->get();
        break;
      case toml::node_type::integer:
        to.kind = Node::Kind::kInteger;
        to.integer = from.as_integer()->get();
        break;
      case toml::node_type::string:
        to.kind = Node::Kind::kText;
        to.text = from.as_string()->get();
        break;
      case toml::node_type::floating_point:
        to.kind = Node::Kind::kReal;
        to.real = from.as_floating_point()->get();
        to.text = fmt::format("{}", to.real);
        break;
      case toml::node_type::array:
        to.kind = Node::Kind::kList;
        for (const toml::node& item : *from.as_array()) {
          to.list.push_back(convert(item, to.place, depth + 1));
        }
        break;
      case toml::node_type::table:
        convert_table(*from.as_table(), depth, to);
        break;
      default:
        to.kind = Node::Kind::kDate;
        if (const auto* date = from.as_date()) to.text = printed(date->get());
        if (const auto* time = from.as_time()) to.text = printed(time->get());
        if (const auto* both = from.as_date_time()) to.text = printed(both->get());
        break;
    }
    return to;
  }

  std::optional<TomlError> too_deep() const { return too_deep_; }

 private:
  void convert_table(const toml::table& from, int depth, Node& to) {
    to.kind = Node::Kind::kTable;
    for (auto&& [key, value] : from) {
      const Place place = place_of(key.source(), to.place);
      to.table.push_back({std::string(key.str()), place, convert(value, place, depth + 1)});
    }
    std::stable_sort(to.table.begin(), to.table.end(),
                     [](const Entry& a, const Entry& b) { return a.key_place < b.key_place; });
  }

  std::optional<TomlError> too_deep_;
};

// toml++ says it well enough, except for the fault that people make most.
std::string reworded(std::string_view description) {
  const std::string text(description);
  static const std::regex kTwice("cannot redefine existing ([^']*) '([^']*)'( as [^']*)?$");
  std::smatch match;
  if (std::regex_search(text, match, kTwice)) {
    return fmt::format("key \"{}\" is given twice (it is {} already)", match[2].str(),
                       match[1].str() == "integer" || match[1].str() == "array"
                           ? "an " + match[1].str()
                           : "a " + match[1].str());
  }
  std::string rest = text;
  if (rest.rfind("Error ", 0) == 0) rest = rest.substr(6);
  return "not valid TOML: " + rest;
}

std::optional<TomlError> oversized(std::string_view text) {
  if (text.size() > kLongestText) {
    return TomlError{{1, 1},
                     fmt::format("the file has {} bytes, expected at most 1 MiB", text.size())};
  }
  int line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > kLongestLine) {
      return TomlError{
          {line, 1},
          fmt::format("the line has {} bytes, expected at most {}", end - begin, kLongestLine)};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

// Where a text or comment that begins at `at` ends: behind its last character. `at` is on its first
// quote or '#'.
std::size_t behind(std::string_view text, std::size_t at) {
  const char quote = text[at];
  if (quote == '#') return std::min(text.find('\n', at), text.size());
  const std::string three(3, quote);
  const std::string mark = text.substr(at, 3) == three ? three : std::string(1, quote);
  for (std::size_t i = at + mark.size(); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text.substr(i, mark.size()) == mark) {
      return i + mark.size();
    } else if (text[i] == '\n' && mark.size() == 1) {
      return i;
    }
  }
  return text.size();
}

// TOML has only ASCII outside its texts and comments. The parser's classes of characters are
// undefined for some others (an umlaut in a key), so it never gets to see them there.
std::optional<TomlError> stray_character(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::size_t at = text.substr(0, kByteOrderMark.size()) == kByteOrderMark ? 3 : 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '#' || c == '"' || c == '\'') {
      at = behind(text, at);
      continue;
    }
    if (static_cast<unsigned char>(c) < 0x80) {
      ++at;
      continue;
    }
    const std::string_view before = text.substr(0, at);
    const std::string_view line = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
    const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; };
    return TomlError{{static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
                      static_cast<int>(std::count_if(line.begin(), line.end(), begins)) + 1},
                     "not valid TOML: a character beyond ASCII, expected such only in texts and "
                     "comments"};
  }
  return std::nullopt;
}

bool gives_up(std::string_view text) {
  try {
    static_cast<void>(toml::parse(text));
  } catch (const toml::parse_error&) {
  } catch (const ParserGaveUp&) {
    return true;
  }
  return false;
}

// The parser does not say where it gave up: at the last line of the shortest beginning of the text
// that it gives up on.
TomlError bad_header(std::string_view text) {
  std::vector<std::size_t> ends;  // of the lines
  for (std::size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n', end + 1)) {
    ends.push_back(end);
  }
  ends.push_back(text.size());
  const auto first = std::partition_point(
      ends.begin(), ends.end(), [text](std::size_t end) { return !gives_up(text.substr(0, end)); });
  const std::size_t index = static_cast<std::size_t>(first - ends.begin());
  const std::size_t begin = index == 0 ? 0 : ends[index - 1] + 1;
  const std::size_t column = std::min(text.find_first_not_of(" \t[", begin), text.size()) - begin;
  return {{static_cast<int>(index) + 1, static_cast<int>(column) + 1},
          "not valid TOML: a header without a name, expected one as in [drill]"};
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  for (const Entry& entry : table) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

std::string_view kind_name(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kBool:
      return "true or false";
    case Node::Kind::kInteger:
      return "a number";
    case Node::Kind::kReal:
      return "a number with a point";
    case Node::Kind::kText:
      return "a text";
    case Node::Kind::kDate:
      return "a date";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kTable:
      return "a table";
  }
  return "?";
}

std::string shown(const Node& node) {
  constexpr std::size_t kLong = 60;
  switch (node.kind) {
    case Node::Kind::kBool:
      return node.boolean ? "true" : "false";
    case Node::Kind::kInteger:
      return std::to_string(node.integer);
    case Node::Kind::kText:
      return "\"" + (node.text.size() > kLong ? node.text.substr(0, kLong) + "..." : node.text) +
             "\"";
    case Node::Kind::kList:
      return "[...]";
    case Node::Kind::kTable:
      return "{...}";
    default:
      return node.text;
  }
}

tl::expected<Node, TomlError> parse_toml(std::string_view text) {
  if (auto error = oversized(text)) return tl::unexpected(*std::move(error));
  if (auto error = stray_character(text)) return tl::unexpected(*std::move(error));
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return tl::unexpected(
        TomlError{place_of(error.source(), {1, 1}), reworded(error.description())});
  } catch (const ParserGaveUp&) {
    return tl::unexpected(bad_header(text));
  }
  Converter converter;
  Node root = converter.convert(table, {1, 1}, 0);
  if (auto error = converter.too_deep()) return tl::unexpected(*std::move(error));
  root.place = {1, 1};
  return root;
}

}  // namespace kv::drill
