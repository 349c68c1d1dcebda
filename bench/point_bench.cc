// What the named points cost: not armed, against an empty loop; and with a board attached, per
// recorded event, for one writing thread and for two at once.
//
// The board is made in this very process. It never wraps and an overflow is an error, so the armed
// part is a fixed number of bursts. Flags: --windows=600 --window_ms=10 (of the unarmed part), and
// Google Benchmark's.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/interleave.h"
#include "harness/board/board.h"
#include "harness/board/kvdrill.h"
#include "kvcore/hook.h"

namespace {

using kv::bench::Windows;

constexpr int kBatch = 4096;                 // calls between two looks at the clock
constexpr int kBurst = 1 << 15;              // events of one writer between two
constexpr int kBursts = 8;                   // of each armed benchmark
constexpr std::uint32_t kEvents = 1u << 21;  // room for all bursts

// Keeps the loop around it, and costs nothing itself.
inline void keep(int i) {
  asm volatile("" : : "r"(i));
}

bool empty_batch() {
  for (int i = 0; i < kBatch; ++i) keep(i);
  return true;
}
bool point_batch() {
  for (int i = 0; i < kBatch; ++i) {
    keep(i);
    kv::point<"bench.point">(i);
  }
  return true;
}
bool fault_batch() {
  for (int i = 0; i < kBatch; ++i) {
    keep(i);
    keep(kv::fault<"bench.fault">(i));
  }
  return true;
}
bool step_batch() {
  for (int i = 0; i < kBatch; ++i) {
    keep(i);
    keep(kv::step<"bench.step">(i));
  }
  return true;
}

struct Line {
  std::string what;
  double ns = 0;
};

// Nanoseconds that a call adds to a loop that is empty without it.
void unarmed(benchmark::State& state, const Windows& windows, bool (*batch)(), Line* line) {
  kv::bench::Comparison result;
  for (auto _ : state) result = kv::bench::compare(windows, empty_batch, batch);
  line->ns = (result.candidate_ns - result.floor_ns) / kBatch;
  state.counters["ns"] = line->ns;
  state.counters["empty_loop_ns"] = result.floor_ns / kBatch;
}

// The board of this process, and the process on it. Nothing is unarmed after it.
kv::drill::Board* attach() {
  static std::optional<kv::drill::Board> board;
  if (board) return &*board;
  kv::drill::Board::Options options;
  options.events = kEvents;
  board.emplace(options);
  const std::string variable = kv::drill::Board::environment(board->board_fd(), board->wake_fd());
  const std::size_t equals = variable.find('=');
  ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);  // NOLINT
  ::setenv("KVDRILL_PROCESS", "bench", 1);  // NOLINT: no other thread is there yet
  static const char* const roles[] = {"bench", nullptr};
  static const kvdrill_command commands[] = {{nullptr, nullptr, nullptr}};
  static kvdrill_engine engine = {KVDRILL_CONTRACT_VERSION,
                                  "point_bench",
                                  roles,
                                  commands,
                                  reinterpret_cast<kvdrill_site*>(kv::all_sites()),
                                  nullptr,
                                  KVDRILL_NO_CRASH_HANDLER};
  kv::install_hooks(reinterpret_cast<const kv::HookTable*>(kvdrill_attach(&engine)));
  return &*board;
}

double burst(void (*event)(int)) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kBurst; ++i) event(i);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kBurst;
}

// Nanoseconds an event for each of `writers` threads that write at the same time: the median burst.
void armed(benchmark::State& state, int writers, void (*event)(int), Line* line) {
  kv::drill::Board* board = attach();
  std::vector<std::vector<double>> all(writers);
  for (auto _ : state) {
    std::barrier together(writers);
    std::vector<std::thread> threads;
    for (std::vector<double>& times : all) {
      threads.emplace_back([&together, &times, event] {
        event(0);  // the thread registers itself with its first event
        for (int i = 0; i < kBursts; ++i) {
          together.arrive_and_wait();
          times.push_back(burst(event));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<double> times;
  for (const auto& one : all) times.insert(times.end(), one.begin(), one.end());
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  line->ns = times[times.size() / 2];
  state.counters["ns"] = line->ns;
  if (const auto full = board->overflow()) state.SkipWithError(full->c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const Windows windows = kv::bench::parse_windows(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::vector<Line> lines = {{"a point not armed"},
                             {"a fault not armed"},
                             {"a step not armed"},
                             {"a point recorded, one writer"},
                             {"a point recorded, two writers"},
                             {"a note recorded, one writer"},
                             {"a note recorded, two writers"}};
  const auto add = [&lines](std::size_t i, auto run) {
    benchmark::RegisterBenchmark(lines[i].what.c_str(), run)
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  };
  bool (*const batches[])() = {point_batch, fault_batch, step_batch};
  for (std::size_t i = 0; i < 3; ++i) {
    add(i, [&, i](benchmark::State& state) { unarmed(state, windows, batches[i], &lines[i]); });
  }
  void (*const events[])(int) = {[](int i) { kv::point<"bench.point">(i); },
                                 [](int i) { kv::note<"bench.note">(i, i); }};
  for (std::size_t i = 3; i < lines.size(); ++i) {
    add(i, [&, i](benchmark::State& state) {
      armed(state, i % 2 == 1 ? 1 : 2, events[i < 5 ? 0 : 1], &lines[i]);
    });
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  std::string all;
  char text[100];
  for (const Line& line : lines) {
    std::snprintf(text, sizeof text, "%s%s %.2f ns", all.empty() ? "" : "; ", line.what.c_str(),
                  line.ns);
    all += text;
  }
  std::printf("%s\n", all.c_str());
  return 0;
}
