// Mapping and unmapping 2 MiB pages through the allocator, against the same driver calls made bare:
// create and map with access, wait for the device, unmap, release. One layer, K and V.
//
// Flags: --driver= (a path, such as that of the real libcuda.so.1; without it the fake card of this
// build), --windows=600 --window_ms=10, and Google Benchmark's. What counts is the ratio on a GPU:
// the fake card's calls are cheaper than a driver's, so that the books weigh more.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/driver_flag.h"
#include "bench/interleave.h"
#include "kvcore/driver/cuda_driver.h"
#include "kvcore/driver/cuda_vmm.h"
#include "kvcore/memory/kv_allocator.h"

namespace {

constexpr std::size_t kPage = 2u << 20;

// The bare calls, on an address range of their own.
class Bare {
 public:
  explicit Bare(const kv::CudaDriver& driver, std::size_t pages)
      : driver_(driver), handles_(pages) {}
  // Makes the device's context current on this thread: what waits for the device needs one.
  bool open() {
    kv::cuda::Context context = nullptr;
    return driver_.device_get(&device_, 0) == 0 &&
           driver_.primary_ctx_retain(&context, device_) == 0 &&
           driver_.ctx_set_current(context) == 0 &&
           driver_.mem_address_reserve(&address_, bytes(), 0, 0, 0) == 0;
  }
  bool close() {
    return driver_.mem_address_free(address_, bytes()) == 0 &&
           driver_.ctx_set_current(nullptr) == 0 && driver_.primary_ctx_release(device_) == 0;
  }
  bool map_and_unmap() {
    kv::cuda::AllocationProp prop{};
    prop.type = kv::cuda::kAllocationTypePinned;
    prop.location = {kv::cuda::kLocationTypeDevice, device_};
    const kv::cuda::AccessDesc access{prop.location, kv::cuda::kAccessReadWrite};
    bool fine = true;
    for (auto& handle : handles_) fine = fine && driver_.mem_create(&handle, kPage, &prop, 0) == 0;
    for (std::size_t i = 0; i < handles_.size() && fine; ++i) {
      fine = driver_.mem_map(at(i), kPage, 0, handles_[i], 0) == 0 &&
             driver_.mem_set_access(at(i), kPage, &access, 1) == 0;
    }
    fine = fine && driver_.ctx_synchronize() == 0;
    for (std::size_t i = 0; i < handles_.size() && fine; ++i) {
      fine = driver_.mem_unmap(at(i), kPage) == 0;
    }
    for (const auto handle : handles_) fine = fine && driver_.mem_release(handle) == 0;
    return fine;
  }

 private:
  std::size_t bytes() const { return handles_.size() * kPage; }
  kv::cuda::Pointer at(std::size_t i) const { return address_ + i * kPage; }

  const kv::CudaDriver& driver_;
  kv::cuda::Device device_ = 0;
  kv::cuda::Pointer address_ = 0;
  std::vector<kv::cuda::AllocationHandle> handles_;
};

struct Case {
  const char* name;
  std::int64_t offsets;
  bool zero_page;
};
constexpr std::array<Case, 3> kCases{{{"map and unmap of 1 offset", 1, false},
                                      {"map and unmap of 16 offsets", 16, false},
                                      {"the same with a zero page", 16, true}}};

std::string run(benchmark::State& state, const std::string& path, const Case& one,
                const kv::bench::Windows& windows, kv::bench::Comparison* result) {
  const auto driver = kv::load_cuda_driver(path);
  if (!driver.ok()) return driver.status().to_string();
  const auto vmm = kv::CudaVmm::open(**driver, 0);
  if (!vmm.ok()) return vmm.status().to_string();
  Bare bare(**driver, static_cast<std::size_t>(one.offsets) * 2);
  if (!bare.open()) return "the bare calls have no context or no range";
  kv::KvShape shape;
  shape.page_bytes = kPage;
  shape.zero_page = one.zero_page;
  shape.tensor_bytes = static_cast<std::size_t>(one.offsets) * 2 * kPage;
  const auto allocator = kv::make_kv_allocator(**vmm, {});
  if (auto status = allocator->create_tensors(0, shape); !status.ok()) return status.to_string();
  std::vector<std::int64_t> batch;
  for (std::int64_t i = 0; i < one.offsets; ++i) {
    batch.push_back(i * static_cast<std::int64_t>(kPage));
  }
  for (auto _ : state) {
    *result = kv::bench::compare(
        windows, [&] { return bare.map_and_unmap(); },
        [&] { return allocator->map(0, batch).ok() && allocator->unmap(0, batch).ok(); });
  }
  if (result->windows == 0) return "a call failed";
  if (const auto status = allocator->release_all(); !status.ok()) return status.to_string();
  if (!bare.close()) return "the bare calls left something";
  const kv::Status status = (*vmm)->close();
  return status.ok() ? "" : status.to_string();
}

}  // namespace

int main(int argc, char** argv) {
  const kv::bench::Windows windows = kv::bench::parse_windows(&argc, argv);
  const std::string driver = kv::bench::parse_driver(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::array<std::string, kCases.size()> lines;
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const auto measure = [&, i](benchmark::State& state) {
      kv::bench::Comparison result;
      const std::string error = run(state, driver, kCases.at(i), windows, &result);
      if (!error.empty()) state.SkipWithError(error.c_str());
      state.counters["ratio"] = result.ratio;
      state.counters["low"] = result.low;
      state.counters["high"] = result.high;
      state.counters["bare_us"] = result.floor_ns / 1e3;
      state.counters["kv_us"] = result.candidate_ns / 1e3;
      lines.at(i) = kv::bench::sentence(kCases.at(i).name, "the bare calls", result);
    };
    benchmark::RegisterBenchmark(kCases.at(i).name, measure)
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  for (const std::string& line : lines) {
    if (!line.empty()) std::printf("%s\n", line.c_str());
  }
  return 0;
}
