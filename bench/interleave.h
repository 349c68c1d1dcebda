// Compares two operations in one program by many short windows, taken in turn, so that what slows
// the machine down for a while slows both. Two runs of the same binary differ by several percent;
// the ratio of neighbouring windows does not.
//
// Threads: measures on the calling thread; the operations may use others.
// Ownership: values.
#ifndef BENCH_INTERLEAVE_H_
#define BENCH_INTERLEAVE_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace kv::bench {

struct Windows {
  int count = 600;  // of each of the two
  std::chrono::milliseconds length{10};
};
// Takes --windows=N and --window_ms=N off the arguments; the rest stays for Google Benchmark.
Windows parse_windows(int* argc, char** argv);

struct Comparison {
  double floor_ns = 0, candidate_ns = 0;  // per operation, median of the windows
  double ratio = 0;                       // candidate / floor, median over pairs of windows
  double low = 0, high = 0;               // 95 % bootstrap interval of that median
  int windows = 0;
};

// Windows of `floor` and `candidate` in turn, the order within a pair swapped each time. Each call
// is one operation and returns false when it failed, which ends the comparison: windows is then 0.
Comparison compare(const Windows& windows, const std::function<bool()>& floor,
                   const std::function<bool()>& candidate);

// "request, small: 1.043x of the bare loop (1.031 to 1.056; 19.8 us against 19.0 us, 600 windows)"
std::string sentence(const std::string& what, const std::string& against, const Comparison& result);

}  // namespace kv::bench

#endif  // BENCH_INTERLEAVE_H_
