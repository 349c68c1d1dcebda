#include "harness/scenario/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <limits>

namespace kv::drill {
namespace {

struct Named {
  const char* name;
  int value;
};

// Every name that the C library has a number for, below `end`.
std::vector<Named> named_by(const char* (*name_of)(int), int end) {
  std::vector<Named> all;
  for (int value = 1; value < end; ++value) {
    if (const char* name = name_of(value)) all.push_back({name, value});
  }
  return all;
}

const std::vector<Named>& errnos() {
  static const std::vector<Named> kAll = [] {
    std::vector<Named> all = named_by(::strerrorname_np, 256);
    all.push_back({"EWOULDBLOCK", EWOULDBLOCK});  // the library names each number once
    all.push_back({"ENOTSUP", ENOTSUP});
    return all;
  }();
  return kAll;
}

const std::vector<Named>& signals() {
  static const std::vector<Named> kAll = named_by(::sigabbrev_np, NSIG);
  return kAll;
}

// The driver's results, by the numbers that its public header gives them.
constexpr Named kResults[] = {
    {"CUDA_ERROR_INVALID_VALUE", 1},
    {"CUDA_ERROR_OUT_OF_MEMORY", 2},
    {"CUDA_ERROR_NOT_INITIALIZED", 3},
    {"CUDA_ERROR_DEINITIALIZED", 4},
    {"CUDA_ERROR_DEVICE_UNAVAILABLE", 46},
    {"CUDA_ERROR_NO_DEVICE", 100},
    {"CUDA_ERROR_INVALID_DEVICE", 101},
    {"CUDA_ERROR_INVALID_CONTEXT", 201},
    {"CUDA_ERROR_MAP_FAILED", 205},
    {"CUDA_ERROR_UNMAP_FAILED", 206},
    {"CUDA_ERROR_ALREADY_MAPPED", 208},
    {"CUDA_ERROR_NOT_MAPPED", 211},
    {"CUDA_ERROR_ECC_UNCORRECTABLE", 214},
    {"CUDA_ERROR_UNSUPPORTED_LIMIT", 215},
    {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", 217},
    {"CUDA_ERROR_NVLINK_UNCORRECTABLE", 220},
    {"CUDA_ERROR_OPERATING_SYSTEM", 304},
    {"CUDA_ERROR_INVALID_HANDLE", 400},
    {"CUDA_ERROR_ILLEGAL_STATE", 401},
    {"CUDA_ERROR_NOT_FOUND", 500},
    {"CUDA_ERROR_NOT_READY", 600},
    {"CUDA_ERROR_ILLEGAL_ADDRESS", 700},
    {"CUDA_ERROR_LAUNCH_TIMEOUT", 702},
    {"CUDA_ERROR_CONTEXT_IS_DESTROYED", 709},
    {"CUDA_ERROR_LAUNCH_FAILED", 719},
    {"CUDA_ERROR_NOT_PERMITTED", 800},
    {"CUDA_ERROR_NOT_SUPPORTED", 801},
    {"CUDA_ERROR_SYSTEM_NOT_READY", 802},
    {"CUDA_ERROR_UNKNOWN", 999},
};

template <typename Table>
std::optional<int> by_name(const Table& table, std::string_view name) {
  for (const Named& entry : table) {
    if (name == entry.name) return entry.value;
  }
  return std::nullopt;
}

template <typename Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const Named& entry : table) names.emplace_back(entry.name);
  return names;
}

std::string lower(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return low;
}

// Insertions, deletions, replacements and swaps of neighbours.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(last, now);
  }
  return last[b.size()];
}

// How one word is a part of the other: whole segments ("read.body" or "listener.read" of
// "listener.read.body"), just its beginning ("sto"), or not at all.
enum class Part { kNone, kBeginning, kSegments };

Part part_of(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.size() < 3 || a.size() == b.size()) return Part::kNone;
  const std::size_t rest = b.size() - a.size();
  if (b.substr(rest) == a && b[rest - 1] == '.') return Part::kSegments;
  if (b.substr(0, a.size()) != a) return Part::kNone;
  return b[a.size()] == '.' ? Part::kSegments : Part::kBeginning;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  constexpr std::size_t kLongest = 200;  // longer than that is no word, and the search is quadratic
  if (word.empty() || word.size() > kLongest) return {};
  const std::string low = lower(word);
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : words) {
    if (candidate.size() > kLongest) continue;
    const std::string other = lower(candidate);
    const std::size_t limit = std::max<std::size_t>(1, std::max(low.size(), other.size()) / 3);
    std::size_t far = distance(low, other);
    const Part part = part_of(low, other);
    if (part == Part::kSegments) {
      far = std::min<std::size_t>(far, 1);
    } else if (far > limit || far >= low.size()) {
      if (part == Part::kNone) continue;
      far = limit + 1;  // behind every misspelling that is near
    }
    if (far < best_distance) {
      best = candidate;
      best_distance = far;
    }
  }
  return best;
}

std::optional<int> errno_by_name(std::string_view name) {
  return by_name(errnos(), name);
}

std::optional<int> signal_by_name(std::string_view name) {
  if (name.substr(0, 3) == "SIG") name.remove_prefix(3);
  return by_name(signals(), name);
}

std::optional<int> result_by_name(std::string_view name) {
  return by_name(kResults, name);
}

std::string short_signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : name;
}

const std::vector<std::string>& errno_names() {
  static const std::vector<std::string> kNames = names_of(errnos());
  return kNames;
}
const std::vector<std::string>& signal_names() {
  static const std::vector<std::string> kNames = names_of(signals());
  return kNames;
}
const std::vector<std::string>& result_names() {
  static const std::vector<std::string> kNames = names_of(kResults);
  return kNames;
}

std::string listed(const std::vector<std::string>& words) {
  constexpr std::size_t kMany = 24;
  if (words.empty()) return "none (there is none)";
  if (words.size() == 1) return words.front();
  if (words.size() <= kMany) return fmt::format("one of {}", fmt::join(words, ", "));
  return fmt::format("one of {}, such as {}, {} or {}", words.size(), words[0], words[1], words[2]);
}

std::string expected_one(std::string_view word, const std::vector<std::string>& words) {
  constexpr std::size_t kMany = 14;
  const std::string near = nearest(word, words);
  if (near.empty() || words.size() == 1) return ", expected " + listed(words);
  if (words.size() > kMany)
    return fmt::format(", expected one of {} (nearest: {})", words.size(), near);
  return fmt::format(", expected {} (nearest: {})", listed(words), near);
}

}  // namespace kv::drill
