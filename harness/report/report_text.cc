// Texts of others, made fit for where they are printed: a terminal, GitHub's runner.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdio>

#include "harness/report/report.h"

namespace kv::drill {
namespace {

// Length of the well-formed UTF-8 character that `text` begins with, of two bytes or more; 0: none.
// The C1 control characters are none either: terminals obey them.
std::size_t character(std::string_view text) {
  const auto at = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = at(1);
  if (first == 0xc2 && second < 0xa0) return 0;                                        // C1
  if ((first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90)) return 0;  // too long
  if ((first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f)) return 0;  // no such
  return length;
}

// For the text behind "::", and for the values in front of it.
std::string for_github(std::string_view text, bool value) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '%' || c == '\n' || (value && (c == ':' || c == ','))) {
      out += fmt::format("%{:02X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string error_line(const Position& position, std::string_view title, std::string_view text) {
  std::string out = "::error ";
  if (!position.file.empty()) out += fmt::format("file={},", for_github(position.file, true));
  if (position.line > 0) out += fmt::format("line={},col={},", position.line, position.column);
  return out + fmt::format("title={}::{}\n", for_github(title, true), for_github(text, false));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const bool plain = first == '\n' || first == '\t' || (first >= 0x20 && first < 0x7f);
    const std::size_t length = plain ? 1 : first >= 0x80 ? character(text) : 0;
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(first));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string line = printable(text);
  for (std::size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at)) {
    line.replace(at, 1, "\\x0a");
  }
  return line;
}

void complain(std::string_view text) {
  // Where it cannot be written nobody can be told, and that is no reason to end otherwise.
  std::fputs(fmt::format("kvdrill: {}\n", one_line(text)).c_str(), stderr);
}

std::string counted(std::uint64_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string not_judged_words(const DrillResult& result) {
  const auto names = not_judged_in(result);
  if (names.empty()) return {};
  return fmt::format("{} not judged: {}", names.size(), fmt::join(names, ", "));
}

std::string annotations(const DrillResult& result) {
  std::string out;
  if (result.verdict <= Verdict::kSkip) return out;
  for (const CheckResult& check : result.checks) {
    if (check.verdict <= Verdict::kSkip) continue;
    Position position = check.position;
    if (position.file.empty()) position.file = result.file;
    out +=
        error_line(position, result.name,
                   fmt::format("{}: {}: {}", check.name, verdict_name(check.verdict), check.why));
  }
  return out;
}

std::string annotation(const ProofResult& result) {
  if (result.verdict <= Verdict::kSkip) return {};
  return error_line(result.position,
                    fmt::format("{} without {}", result.scenario, fmt::join(result.skip, " and ")),
                    fmt::format("{}: {}", verdict_name(result.verdict), result.why));
}

}  // namespace kv::drill
