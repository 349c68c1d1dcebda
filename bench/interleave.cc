#include "bench/interleave.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>

namespace kv::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Nanoseconds per operation over one window.
std::optional<double> window(std::chrono::milliseconds length,
                             const std::function<bool()>& operation) {
  const auto begin = SteadyClock::now();
  const auto end = begin + length;
  std::int64_t operations = 0;
  auto now = begin;
  while (now < end) {
    if (!operation()) return std::nullopt;
    ++operations;
    now = SteadyClock::now();
  }
  return std::chrono::duration<double, std::nano>(now - begin).count() /
         static_cast<double>(operations);
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void bootstrap(const std::vector<double>& ratios, Comparison* result) {
  constexpr int kResamples = 1000;
  std::mt19937_64 random(1);  // the same windows give the same interval
  std::uniform_int_distribution<std::size_t> pick(0, ratios.size() - 1);
  std::vector<double> medians, sample(ratios.size());
  for (int i = 0; i < kResamples; ++i) {
    for (double& one : sample) one = ratios[pick(random)];
    medians.push_back(median(sample));
  }
  std::sort(medians.begin(), medians.end());
  result->low = medians[kResamples * 25 / 1000];
  result->high = medians[kResamples * 975 / 1000];
}

// The number behind `flag` in the argument, if it is that flag.
std::optional<int> value_of(std::string_view argument, std::string_view flag) {
  if (!argument.starts_with(flag)) return std::nullopt;
  return std::max(1, std::atoi(argument.data() + flag.size()));
}

}  // namespace

Windows parse_windows(int* argc, char** argv) {
  Windows windows;
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    if (const auto count = value_of(argv[i], "--windows=")) {
      windows.count = *count;
    } else if (const auto length = value_of(argv[i], "--window_ms=")) {
      windows.length = std::chrono::milliseconds(*length);
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  return windows;
}

Comparison compare(const Windows& windows, const std::function<bool()>& floor,
                   const std::function<bool()>& candidate) {
  std::vector<double> floors, candidates, ratios;
  // The first pair warms both up and does not count.
  for (int i = -1; i < windows.count; ++i) {
    const bool floor_first = i % 2 == 0;
    const auto first = window(windows.length, floor_first ? floor : candidate);
    const auto second = window(windows.length, floor_first ? candidate : floor);
    if (!first || !second) return {};
    if (i < 0) continue;
    floors.push_back(floor_first ? *first : *second);
    candidates.push_back(floor_first ? *second : *first);
    ratios.push_back(candidates.back() / floors.back());
  }
  Comparison result;
  result.windows = windows.count;
  bootstrap(ratios, &result);
  result.ratio = median(ratios);
  result.floor_ns = median(floors);
  result.candidate_ns = median(candidates);
  return result;
}

std::string sentence(const std::string& what, const std::string& against,
                     const Comparison& result) {
  if (result.windows == 0) return what + ": an operation failed";
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "%.3fx (%.3f to %.3f; %.2f us against %.2f us, %d windows)", result.ratio,
                result.low, result.high, result.candidate_ns / 1e3, result.floor_ns / 1e3,
                result.windows);
  return what + " against " + against + ": " + numbers;
}

}  // namespace kv::bench
