#include "harness/scenario/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

namespace kv::drill {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t factor;
};
constexpr std::array<Unit, 6> kTimes{{{"h", 3'600'000'000'000},
                                      {"min", 60'000'000'000},
                                      {"s", 1'000'000'000},
                                      {"ms", 1'000'000},
                                      {"us", 1'000},
                                      {"ns", 1}}};
constexpr std::array<Unit, 5> kSizes{{{"TiB", std::int64_t{1} << 40},
                                      {"GiB", std::int64_t{1} << 30},
                                      {"MiB", std::int64_t{1} << 20},
                                      {"KiB", std::int64_t{1} << 10},
                                      {"B", 1}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A whole number and a unit. `bare`: what a number without a unit stands for; 0: not allowed.
template <std::size_t N>
tl::expected<std::int64_t, std::string> parse_with_unit(std::string_view text,
                                                        const std::array<Unit, N>& units,
                                                        std::int64_t bare,
                                                        std::string_view expected) {
  const auto wrong = [&] {
    return tl::unexpected(fmt::format("\"{}\" is not {}", text, expected));
  };
  std::size_t digits = 0;
  while (digits < text.size() && is_digit(text[digits])) ++digits;
  if (digits == 0) return wrong();
  std::int64_t number = 0;
  if (std::from_chars(text.data(), text.data() + digits, number).ec != std::errc()) {
    return tl::unexpected(fmt::format("\"{}\" is too large", text));
  }
  std::string_view unit = text.substr(digits);
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  std::int64_t factor = 0;
  if (digits == text.size()) factor = bare;
  for (const Unit& known : units) {
    if (unit == known.name) factor = known.factor;
  }
  if (factor == 0) return wrong();
  if (number > std::numeric_limits<std::int64_t>::max() / factor) {
    return tl::unexpected(fmt::format("\"{}\" is too large", text));
  }
  return number * factor;
}

template <std::size_t N>
std::string show_with_unit(std::int64_t value, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) {
      return fmt::format("{}{}", value / unit.factor, unit.name);
    }
  }
  return fmt::format("{}{}", value, units.back().name);
}

template <typename T>
std::optional<T> number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

tl::expected<std::int64_t, std::string> parse_duration(std::string_view text) {
  return parse_with_unit(text, kTimes, 0,
                         "a duration, expected a whole number and ns, us, ms, s, min or h, as in "
                         "\"250ms\"");
}

tl::expected<std::int64_t, std::string> parse_bytes(std::string_view text) {
  return parse_with_unit(text, kSizes, 1,
                         "a size, expected a whole number and B, KiB, MiB, GiB or TiB, as in "
                         "\"2MiB\"");
}

std::string show_duration(std::int64_t ns) {
  return show_with_unit(ns, kTimes);
}
std::string show_bytes(std::int64_t bytes) {
  return show_with_unit(bytes, kSizes);
}

tl::expected<std::string, std::string> parse_hex(std::string_view text) {
  std::string bytes;
  int high = -1;
  for (const char c : text) {
    if (c == ' ' && high < 0) continue;
    const int digit = hex_digit(c);
    if (digit < 0) {
      return tl::unexpected(
          c == ' ' ? std::string("a byte has one digit only, expected pairs as in \"00 ff\"")
                   : fmt::format("\"{}\" is no hexadecimal digit, expected pairs as in \"00 ff\"",
                                 std::string(1, c)));
    }
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<char>(high * 16 + digit));
      high = -1;
    }
  }
  if (high >= 0) {
    return tl::unexpected(std::string("an odd number of digits, expected pairs as in \"00 ff\""));
  }
  return bytes;
}

tl::expected<std::vector<std::string>, std::string> template_names(std::string_view path) {
  std::vector<std::string> names;
  for (std::size_t at = path.find_first_of("{}"); at != std::string_view::npos;
       at = path.find_first_of("{}", at)) {
    const std::size_t end = path.find_first_of("{}", at + 1);
    if (path[at] == '}' || end == std::string_view::npos || path[end] == '{') {
      return tl::unexpected(fmt::format("a brace in \"{}\" has no partner", path));
    }
    names.emplace_back(path.substr(at + 1, end - at - 1));
    if (names.back().empty()) {
      return tl::unexpected(fmt::format("nothing between the braces in \"{}\"", path));
    }
    at = end + 1;
  }
  return names;
}

// Cut off from the end: "/thread", "@process", "#hit", "[key]"; what is left is the name. A
// thread's label may hold any of these characters, so the first '/' decides.
tl::expected<Address, std::string> parse_address(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return tl::unexpected(
        fmt::format("\"{}\": {}, expected name[key]#hit@process/thread", text, what));
  };
  Address address;
  std::string_view rest = text;
  if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
    address.thread = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (address.thread.empty()) return wrong("no thread after \"/\"");
  }
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    address.process = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (address.process.empty()) return wrong("no process after \"@\"");
  }
  if (const auto hash = rest.rfind('#'); hash != std::string_view::npos) {
    address.hit = number<std::uint64_t>(rest.substr(hash + 1));
    rest = rest.substr(0, hash);
    if (address.hit.value_or(0) == 0) return wrong("the hit is no number from 1 on");
  }
  if (!rest.empty() && rest.back() == ']') {
    const auto open = rest.rfind('[');
    if (open == std::string_view::npos) return wrong("\"]\" without \"[\"");
    address.key = number<std::int64_t>(rest.substr(open + 1, rest.size() - open - 2));
    rest = rest.substr(0, open);
    if (!address.key) return wrong("the key is no number");
  }
  address.site = rest;
  if (rest.empty()) return wrong("no name");
  if (rest.find_first_of("[]#@ ") != std::string_view::npos) return wrong("not a name");
  return address;
}

std::string to_string(const Address& address) {
  std::string text = address.site;
  if (address.key) text += fmt::format("[{}]", *address.key);
  if (address.hit) text += fmt::format("#{}", *address.hit);
  if (!address.process.empty()) text += "@" + address.process;
  if (!address.thread.empty()) text += "/" + address.thread;
  return text;
}

}  // namespace kv::drill
