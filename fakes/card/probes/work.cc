// Probes of pages taken away under work in flight. The work is the card's stand-in for a kernel: a
// stream held over a range; a real driver needs a real kernel, which these probes do not have.
#include <string>
#include <vector>

#include "fakes/card/probes/probe.h"

namespace kv::card {
namespace {

// Two accessible pages with work in flight over the first.
struct Busy {
  explicit Busy(const Driver& the_driver) : driver(the_driver) {
    driver.start();
    base = driver.reserve(8);
    other = base + kPageSize;
    handle = driver.page_at(base);
    other_handle = driver.page_at(other);
    must(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  void launch() {
    must(static_cast<CUresult>(driver.kvcardHoldStream(stream, base, kPageSize)), "hold");
    must(static_cast<CUresult>(driver.kvcardAwaitHold(stream)), "await");
  }
  void let_end() { driver.kvcardReleaseStream(stream); }

  const Driver& driver;
  CUdeviceptr base = 0, other = 0;
  CUmemGenericAllocationHandle handle = 0, other_handle = 0;
  CUstream stream = nullptr;
};

void unmap_under_kernel(const Driver& driver, const Facts& facts) {
  const auto fact = [](const char* name) { return std::string("unmap_under_kernel.") + name; };
  Busy busy(driver);
  busy.launch();
  facts.status(fact("unmap"), driver.cuMemUnmap(busy.base, kPageSize));
  facts.status(fact("sync"), driver.cuStreamSynchronize(busy.stream));
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  facts.status(fact("later_create"), driver.cuMemCreate(&handle, kPageSize, &prop, 0));
  char byte = 0;
  facts.status(fact("later_copy_of_other_page"), driver.cuMemcpyDtoH(&byte, busy.other, 1));
  facts.status(fact("later_unmap_of_other_page"), driver.cuMemUnmap(busy.other, kPageSize));
  facts.status(fact("later_release"), driver.cuMemRelease(busy.other_handle));
  CUdeviceptr address = 0;
  facts.status(fact("later_reserve"), driver.cuMemAddressReserve(&address, kPageSize, 0, 0, 0));
  std::size_t free = 0, total = 0;
  facts.status(fact("later_mem_get_info"), driver.cuMemGetInfo(&free, &total));
  facts.status(fact("later_ctx_sync"), driver.cuCtxSynchronize());
}

void swap_under_kernel(const Driver& driver, const Facts& facts) {
  Busy busy(driver);
  const auto spare = driver.create();
  busy.launch();
  facts.status("swap_under_kernel.unmap", driver.cuMemUnmap(busy.base, kPageSize));
  facts.status("swap_under_kernel.map_other", driver.cuMemMap(busy.base, kPageSize, 0, spare, 0));
  facts.status("swap_under_kernel.access", driver.access(busy.base));
  facts.status("swap_under_kernel.sync", driver.cuStreamSynchronize(busy.stream));
}

void unmap_under_copy(const Driver& driver, const Facts& facts) {
  Busy busy(driver);
  // The copy is in flight behind other work that has no end yet.
  must(static_cast<CUresult>(driver.kvcardHoldStream(busy.stream, 0, 0)), "hold");
  must(driver.cuMemcpyDtoDAsync(busy.other, busy.base, kPageSize, busy.stream), "copy");
  facts.status("unmap_under_copy.unmap_source", driver.cuMemUnmap(busy.base, kPageSize));
  busy.let_end();
  facts.status("unmap_under_copy.sync", driver.cuStreamSynchronize(busy.stream));
}

void release_under_kernel(const Driver& driver, const Facts& facts) {
  Busy busy(driver);
  busy.launch();
  facts.status("release_handle_under_kernel.release", driver.cuMemRelease(busy.handle));
  busy.let_end();
  facts.status("release_handle_under_kernel.sync", driver.cuStreamSynchronize(busy.stream));
}

constexpr auto kHeld = Probe::Needs::kHeldStreams;
constexpr auto kEnds = Probe::End::kProcess;

}  // namespace

const Probe kWorkProbes[] = {
    {"unmap_under_kernel", unmap_under_kernel, kHeld, kEnds},
    {"swap_under_kernel", swap_under_kernel, kHeld, kEnds},
    {"unmap_under_copy", unmap_under_copy, kHeld, kEnds},
    {"release_handle_under_kernel", release_under_kernel, kHeld, kEnds},
    {nullptr, nullptr},
};

}  // namespace kv::card
