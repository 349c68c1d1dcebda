// Probes of a process's last moments, and of a child that was forked with the driver up.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "fakes/card/probes/probe.h"

namespace kv::card {
namespace {

const Driver* last_driver = nullptr;
CUdeviceptr last_page = 0;
CUmemGenericAllocationHandle last_handle = 0;

// Made before cuInit, and so destroyed after the driver has gone down.
struct Late {
  ~Late() {
    if (last_driver == nullptr) return;
    const Facts facts(*last_driver);
    const CUmemAllocationProp prop = properties();
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    std::size_t free = 0, total = 0;
    facts.status("static_destructor.reserve",
                 last_driver->cuMemAddressReserve(&address, kPageSize, 0, 0, 0));
    facts.status("static_destructor.create",
                 last_driver->cuMemCreate(&handle, kPageSize, &prop, 0));
    facts.status("static_destructor.unmap", last_driver->cuMemUnmap(last_page, kPageSize));
    facts.status("static_destructor.release", last_driver->cuMemRelease(last_handle));
    facts.status("static_destructor.mem_get_info", last_driver->cuMemGetInfo(&free, &total));
  }
};
Late late;

void in_exit_handler() {
  std::size_t free = 0, total = 0;
  Facts(*last_driver).status("atexit.mem_get_info", last_driver->cuMemGetInfo(&free, &total));
}

void exits(const Driver& driver, const Facts&) {
  driver.start();
  last_page = driver.reserve(4);
  last_handle = driver.page_at(last_page);
  last_driver = &driver;
  std::atexit(in_exit_handler);
}

void fork_child(const Driver& driver, const Facts& facts) {
  driver.start();
  const pid_t child = ::fork();
  if (child == 0) {
    const CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    facts.status("fork_child.cuMemCreate", driver.cuMemCreate(&handle, kPageSize, &prop, 0));
    facts.status("fork_child.reserve", driver.cuMemAddressReserve(&address, kPageSize, 0, 0, 0));
    facts.status("fork_child.cuInit", driver.cuInit(0));
    ::_exit(0);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) give_up("the forked child failed");
  facts.status("context_still_usable", driver.cuCtxSynchronize());
}

void exit_with_kernel(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  driver.page_at(base);
  facts.status("exit_with_kernel_in_flight.launched",
               static_cast<CUresult>(driver.kvcardHoldStream(nullptr, base, kPageSize)));
}

void exit_with_host_function(const Driver& driver, const Facts& facts) {
  driver.start();
  static int ends[2];
  if (::pipe(ends) != 0) give_up("pipe");
  const auto never = [](void*) {
    char byte = 0;
    [[maybe_unused]] const ssize_t got = ::read(ends[0], &byte, 1);
  };
  facts.status("exit_with_host_func_pending.queued",
               driver.cuLaunchHostFunc(nullptr, never, nullptr));
}

constexpr auto kEnds = Probe::End::kProcess;

}  // namespace

const Probe kExitProbes[] = {
    {"exit", exits},
    {"fork_child", fork_child},
    {"exit_with_kernel_in_flight", exit_with_kernel, Probe::Needs::kHeldStreams, kEnds},
    {"exit_with_host_func_pending", exit_with_host_function, Probe::Needs::kNothing, kEnds},
    {nullptr, nullptr},
};

}  // namespace kv::card
