// The cache's own costs: a block taken and freed by the books alone, over a backend that costs
// nothing; and tensors made on a driver, whose cost must not depend on how many pages they have.
//
// Flags: --windows=600 --window_ms=10 (bursts of the block part, and how long each is), --driver=
// (a path; without it the fake card of this build), and Google Benchmark's.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/driver_flag.h"
#include "bench/interleave.h"
#include "kvcore/base/clock.h"
#include "kvcore/cache/kv_cache_manager.h"
#include "kvcore/driver/cuda_vmm.h"
#include "kvcore/memory/kv_allocator.h"

namespace {

using kv::KvCacheManager;
using Blocks = KvCacheManager::Blocks;

constexpr std::size_t kPageBytes = 2u << 20;
constexpr std::int64_t kPages = 1024, kBlocksOfAPage = 64;
constexpr std::int64_t kRequest = 16;  // blocks at a time
constexpr std::int64_t kRequests = kPages * kBlocksOfAPage / kRequest;

// Of this thread alone, so that what else the machine does counts less.
double cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class FreeOfCharge final : public kv::PageBackend {
 public:
  Done map(const std::vector<std::int64_t>& /*pages*/) override { return {}; }
  Done unmap(const std::vector<std::int64_t>& /*pages*/) override { return {}; }
};

// A cache of kPages pages, all of which stay mapped once they were.
struct Cache {
  Cache() {
    kv::PageOptions options;
    options.pages = kPages;
    options.page_bytes = kPageBytes;
    options.high = kPages;
    options.keeper = false;
    pages = std::move(*kv::PageAllocator::make(options, backend, clock, {}));
    manager = std::move(
        *KvCacheManager::make({kPageBytes, kPageBytes / kBlocksOfAPage, kPages, false}, *pages));
  }
  Blocks take(std::int64_t n) {
    auto blocks = manager->alloc(n);
    return blocks.ok() && *blocks ? std::move(**blocks) : Blocks();
  }

  FreeOfCharge backend;
  kv::RealClock clock;
  std::unique_ptr<kv::PageAllocator> pages;
  std::unique_ptr<KvCacheManager> manager;
};

struct Level {
  const char* name;
  // Leaves the cache as the level says. False: it could not.
  bool (*fill)(Cache* cache);
};

bool leave_empty(Cache* /*cache*/) {
  return true;
}
bool fill_requests(Cache* cache, std::int64_t requests) {
  for (std::int64_t i = 0; i < requests; ++i) {
    if (cache->take(kRequest).empty()) return false;
  }
  return true;
}
bool fill_half(Cache* cache) {
  // An odd number of requests: the last page keeps room for some more.
  return fill_requests(cache, kRequests / 2 + 1);
}
bool fill_nearly(Cache* cache) {
  return fill_requests(cache, kRequests - 1);
}
bool fragment(Cache* cache) {
  Blocks others, all = cache->take(kPages * kBlocksOfAPage);
  for (std::size_t i = 0; i < all.size(); i += 2) others.push_back(all[i]);
  return !all.empty() && cache->manager->free(others).ok();
}

constexpr std::array<Level, 4> kLevels{{{"fresh", leave_empty},
                                        {"half full", fill_half},
                                        {"one request short of full", fill_nearly},
                                        {"every other block used", fragment}}};

struct Line {
  std::string what;
  double value = 0;
};

// Nanoseconds a block, for 16 taken and freed again.
void blocks(benchmark::State& state, const Level& level, const kv::bench::Windows& windows,
            Line* line) {
  Cache cache;
  bool fine = level.fill(&cache);
  std::vector<double> bursts;
  for (auto _ : state) {
    for (int i = 0; i < windows.count && fine; ++i) {
      constexpr int kBetweenLooks = 256;
      const double begin = cpu_ns(), length = std::chrono::nanoseconds(windows.length).count();
      std::int64_t rounds = 0;
      double took = 0;
      for (; fine && took < length; took = cpu_ns() - begin) {
        for (int k = 0; k < kBetweenLooks; ++k) {
          const auto taken = cache.manager->alloc(kRequest);
          fine = fine && taken.ok() && taken->has_value() && cache.manager->free(**taken).ok();
        }
        rounds += kBetweenLooks;
      }
      bursts.push_back(took / static_cast<double>(rounds * kRequest));
    }
  }
  if (!fine) {
    state.SkipWithError("an allocation missed");
    return;
  }
  line->value = median(std::move(bursts));
  state.counters["ns_per_block"] = line->value;
}

// Microseconds to make the tensors of one layer, K and V, of so many pages each.
void tensors(benchmark::State& state, const std::string& driver, std::int64_t pages, Line* line) {
  const auto vmm = kv::CudaVmm::open(driver, 0);
  if (!vmm.ok()) {
    state.SkipWithError(vmm.status().to_string().c_str());
    return;
  }
  kv::KvShape shape;
  shape.page_bytes = kPageBytes;
  shape.tensor_bytes = static_cast<std::size_t>(pages) * 2 * kPageBytes;
  const auto allocator = kv::make_kv_allocator(**vmm, {});
  std::vector<double> times;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    kv::Status status = allocator->create_tensors(0, shape);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (status.ok()) status = allocator->release_all();
    if (!status.ok()) {
      state.SkipWithError(status.to_string().c_str());
      break;
    }
    state.SetIterationTime(took.count());
    times.push_back(took.count() * 1e6);
  }
  if (!times.empty()) line->value = median(std::move(times));
  state.counters["us"] = line->value;
  if (const kv::Status status = (*vmm)->close(); !status.ok()) {
    state.SkipWithError(status.to_string().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const kv::bench::Windows windows = kv::bench::parse_windows(&argc, argv);
  const std::string driver = kv::bench::parse_driver(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  constexpr std::array<std::int64_t, 4> kSizes{1, 64, 4096, 65536};
  std::vector<Line> lines(kLevels.size() + kSizes.size());
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    lines[i].what = kLevels.at(i).name;
    benchmark::RegisterBenchmark(
        ("16 blocks, " + lines[i].what).c_str(),
        [&, i](benchmark::State& state) { blocks(state, kLevels.at(i), windows, &lines[i]); })
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    Line* line = &lines[kLevels.size() + i];
    line->what = std::to_string(kSizes.at(i));
    benchmark::RegisterBenchmark(
        ("tensors of " + line->what + " pages").c_str(),
        [&, i, line](benchmark::State& state) { tensors(state, driver, kSizes.at(i), line); })
        ->Iterations(std::max(windows.count / 4, 1))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  std::string text = "a block taken and freed, 16 at a time:";
  char number[64];
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool block = i < kLevels.size();
    if (i == kLevels.size()) text += "; tensors made:";
    std::snprintf(number, sizeof number, block ? " %.1f ns" : " %.1f us", lines[i].value);
    text += (i == 0 || i == kLevels.size() ? " " : ", ") + lines[i].what +
            (block                  ? ""
             : lines[i].what == "1" ? " page"
                                    : " pages") +
            number;
  }
  std::printf("%s\n", text.c_str());
  return 0;
}
