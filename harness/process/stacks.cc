#include "harness/process/stacks.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "harness/process/process.h"

namespace kv::drill {
namespace {

constexpr const char* kUnknown = "??";

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

std::string demangled(std::string_view symbol) {
  if (!symbol.starts_with("_Z")) return std::string(symbol);  // "f" would be read as a type
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(std::string(symbol).c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : std::string(symbol);
}

// "module+0xoffset": the two halves, or nothing when it is not of that form.
std::pair<std::string, std::string> halves(const std::string& place) {
  const auto plus = place.rfind("+0x");
  if (plus == std::string::npos || plus == 0) return {};
  return {place.substr(0, plus), place.substr(plus + 1)};
}

// Whether the module still has its own table of symbols. Of a stripped one, addr2line names what
// is exported nearest before the place, however far that is.
bool has_symbols(const std::string& module) {
  std::ifstream file(module, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section{};
    file.seekg(static_cast<std::streamoff>(header.e_shoff + std::uint64_t{i} * sizeof section));
    if (!file.read(reinterpret_cast<char*>(&section), sizeof section)) return false;
    if (section.sh_type == SHT_SYMTAB) return true;
  }
  return false;
}

// The functions of each place of a module, as addr2line tells them; of those that it cannot, none.
std::map<std::string, std::vector<Frame>> ask(const std::string& addr2line,
                                              const std::string& module,
                                              const std::vector<std::string>& offsets,
                                              int limit_ms) {
  std::map<std::string, std::vector<Frame>> told;
  std::vector<std::string> arguments = {"-a", "-i", "-f", "-C", "-e", module};
  arguments.insert(arguments.end(), offsets.begin(), offsets.end());
  const auto output = output_of(addr2line, arguments, {{"PATH", "/usr/bin:/bin"}}, limit_ms);
  if (!output) return told;
  const bool trusted = has_symbols(module);
  const auto lines = lines_of(*output);
  std::size_t place = 0;  // of the offset that the lines are about, from 1
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("0x")) {  // -a: the address; then pairs of function and source
      ++place;
      continue;
    }
    if (place == 0 || place > offsets.size() || i + 1 == lines.size()) break;
    const std::string_view function = lines[i];
    std::string_view source = lines[++i];
    source = source.substr(0, source.find(" (discriminator"));
    if (source.starts_with("??") || source.ends_with(":?")) source = {};
    if (function == kUnknown || (source.empty() && !trusted)) continue;
    const std::string at = fmt::format("{}+{}", module, offsets[place - 1]);
    told[at].push_back({at, std::string(function), std::string(source)});
  }
  return told;
}

// Libraries of the system and of the harness, and what their headers put into other code.
bool is_foreign(const Frame& frame) {
  const auto begins = [](const std::string& text, const auto& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&text](const char* prefix) { return text.starts_with(prefix); });
  };
  const std::string module = halves(frame.place).first;
  if (module.empty() || module.front() != '/') return true;  // the kernel's own, or nowhere
  const std::string name = module.substr(module.rfind('/') + 1);
  return begins(module, std::array{"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"}) ||
         begins(name, std::array{"libkvdrill.so", "libcuda.so"}) ||
         begins(frame.source, std::array{"/usr/include/", "/usr/lib/"});
}

std::string base_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// "kv::boom(int) (boom.cc:3)"; what is not known has its place: "?? (libx.so+0x10)".
std::string line_of(const Frame& frame) {
  const std::string name = shortened(frame.function);
  if (!frame.source.empty()) return fmt::format("{} ({})", name, base_name(frame.source));
  return frame.function == kUnknown ? fmt::format("{} ({})", name, base_name(frame.place)) : name;
}

}  // namespace

std::vector<Frame> frames_of(std::string_view text) {
  std::vector<Frame> frames;
  for (const std::string_view line : lines_of(text)) {
    const auto space = line.find(' ');
    const bool named = space != std::string_view::npos;
    frames.push_back({std::string(line.substr(0, space)),
                      named ? demangled(line.substr(space + 1)) : kUnknown, ""});
  }
  return frames;
}

std::vector<Frame> looked_up(std::string_view text, const std::string& addr2line, int limit_ms) {
  std::vector<Frame> known = frames_of(text);
  if (addr2line.empty()) return known;
  std::map<std::string, std::vector<std::string>> offsets;
  for (const Frame& frame : known) {
    const auto [module, offset] = halves(frame.place);
    if (!module.empty() && module.front() == '/') offsets[module].push_back(offset);
  }
  std::map<std::string, std::vector<Frame>> told;
  for (const auto& [module, its] : offsets) told.merge(ask(addr2line, module, its, limit_ms));
  std::vector<Frame> frames;
  for (Frame& frame : known) {
    const auto found = told.find(frame.place);
    if (found == told.end()) {
      frames.push_back(std::move(frame));
    } else {
      frames.insert(frames.end(), found->second.begin(), found->second.end());
    }
  }
  return frames;
}

std::string in_full(const std::vector<Frame>& frames) {
  std::string text;
  const std::string* place = nullptr;
  for (const Frame& frame : frames) {
    if (place == nullptr || *place != frame.place) text += "    " + frame.place + "\n";
    place = &frame.place;
    text += "        " + frame.function;
    if (!frame.source.empty()) text += " at " + frame.source;
    text += "\n";
  }
  return text;
}

std::string in_short(const std::vector<Frame>& frames) {
  constexpr std::size_t kShown = 6;
  std::vector<const Frame*> chosen;
  for (const Frame& frame : frames) {
    if (!is_foreign(frame)) chosen.push_back(&frame);
  }
  const bool own = !chosen.empty();
  for (std::size_t i = 0; !own && i < frames.size(); ++i) chosen.push_back(&frames[i]);
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, chosen.size()); ++i) {
    text += "\n  " + line_of(*chosen[i]);
    if (i == 0 && own && is_foreign(frames.front()) && frames.front().function != kUnknown) {
      text += ", inside " + shortened(frames.front().function);
    }
  }
  if (chosen.size() > kShown) text += fmt::format("\n  and {} more", chosen.size() - kShown);
  return text;
}

std::string shortened(std::string_view function) {
  constexpr std::size_t kLong = 120;
  std::string name;
  int depth = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    const bool arrow = c == '>' && i > 0 && function[i - 1] == '-';
    // "operator<", "operator<<", "operator->": no list begins or ends there.
    const bool of_operator =
        depth == 0 && (name.ends_with("operator") || name.ends_with("operator<") || arrow);
    if (c == '<' && !of_operator) {
      if (depth++ == 0) name += "<...>";
    } else if (c == '>' && depth > 0 && !arrow) {
      --depth;
    } else if (depth == 0) {
      name += c;
    }
  }
  if (name.size() <= kLong) return name;
  // The parameters tell least; "(anonymous namespace)" is no list of them.
  for (auto open = name.find('('); open != std::string::npos; open = name.find('(', open + 1)) {
    if (name.compare(open, 21, "(anonymous namespace)") == 0) continue;
    if (open > 0) name.replace(open, std::string::npos, "(...)");
    break;
  }
  return name.size() <= kLong ? name : name.substr(0, kLong) + "...";
}

std::string find_addr2line() {
  for (const char* path : {"/usr/bin/addr2line", "/usr/bin/llvm-addr2line", "/bin/addr2line"}) {
    if (::access(path, X_OK) == 0) return path;
  }
  return {};
}

}  // namespace kv::drill
