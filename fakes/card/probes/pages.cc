// Probes of the virtual-memory calls within one process.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fakes/card/probes/probe.h"

namespace kv::card {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr CUdeviceptr kFarAway = CUdeviceptr{1} << 40;
constexpr CUmemGenericAllocationHandle kInvented = 0x1234567890;

CUresult copy_to(const Driver& driver, CUdeviceptr to, std::uint64_t size = 4096) {
  const std::vector<char> bytes(size, 'x');
  return driver.cuMemcpyHtoD(to, bytes.data(), size);
}

void before_init(const Driver& driver, const Facts& facts) {
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  facts.status("before_cuInit.create", driver.cuMemCreate(&handle, kPageSize, &prop, 0));
  int version = 0;
  must(driver.cuDriverGetVersion(&version), "cuDriverGetVersion");
  facts.number("driver_api_version", version);
}

void no_context(const Driver& driver, const Facts& facts) {
  must(driver.cuInit(0), "cuInit");
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  std::size_t free = 0, total = 0;
  facts.status("no_current_context.create", driver.cuMemCreate(&handle, kPageSize, &prop, 0));
  facts.status("no_current_context.reserve",
               driver.cuMemAddressReserve(&address, kPageSize, 0, 0, 0));
  facts.status("no_current_context.mem_get_info", driver.cuMemGetInfo(&free, &total));
}

void reserve(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUmemAllocationProp prop = properties();
  std::size_t granularity = 0;
  must(driver.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
       "granularity");
  facts.number("granularity.minimum", static_cast<std::int64_t>(granularity));
  must(driver.cuMemGetAllocationGranularity(&granularity, &prop,
                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
       "granularity");
  facts.number("granularity.recommended", static_cast<std::int64_t>(granularity));

  CUdeviceptr address = 0, other = 0;
  facts.status("reserve.size_zero", driver.cuMemAddressReserve(&address, 0, 0, 0, 0));
  facts.status("reserve.size_4096", driver.cuMemAddressReserve(&address, 4096, 0, 0, 0));
  facts.status("reserve.alignment_not_power_of_two",
               driver.cuMemAddressReserve(&address, kPageSize, 3 * kPageSize, 0, 0));
  facts.status("reserve.64_pages", driver.cuMemAddressReserve(&address, 64 * kPageSize, 0, 0, 0));
  const CUdeviceptr hint = CUdeviceptr{3} << 44;
  facts.status("reserve.hint", driver.cuMemAddressReserve(&other, kPageSize, 0, hint, 0));
  facts.truth("reserve.hint_honoured", other == hint);
  facts.status("reserve.hint_taken", driver.cuMemAddressReserve(&other, kPageSize, 0, address, 0));
  facts.truth("reserve.hint_taken_elsewhere", other != address);
  const CUdeviceptr large = driver.reserve(1024);
  facts.status("cost.addressfree", driver.cuMemAddressFree(large, 1024 * kPageSize));
}

void create(const Driver& driver, const Facts& facts) {
  driver.start();
  CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  facts.status("create.size_zero", driver.cuMemCreate(&handle, 0, &prop, 0));
  facts.status("create.size_1MiB", driver.cuMemCreate(&handle, kMiB, &prop, 0));
  const std::int64_t before = driver.free_bytes();
  facts.status("create.2MiB", driver.cuMemCreate(&handle, kPageSize, &prop, 0));
  facts.number("create.2MiB.free_drop_bytes", before - driver.free_bytes());
  std::size_t total = 0;
  must(driver.cuDeviceTotalMem(&total, 0), "cuDeviceTotalMem");
  const auto pages = [](std::uint64_t bytes) { return (bytes / kPageSize + 1) * kPageSize; };
  CUmemGenericAllocationHandle other = 0;
  facts.status("create.more_than_total", driver.cuMemCreate(&other, pages(total), &prop, 0));
  facts.status(
      "create.more_than_free",
      driver.cuMemCreate(&other, pages(static_cast<std::uint64_t>(driver.free_bytes())), &prop, 0));
  prop.location.id = 99;
  facts.status("create.bad_device", driver.cuMemCreate(&other, kPageSize, &prop, 0));
}

void map_refused(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(64);
  const auto one = driver.create();
  const auto two = driver.create(2 * kPageSize);
  const auto try_map = [&](CUdeviceptr address, std::uint64_t size, std::uint64_t offset,
                           CUmemGenericAllocationHandle handle) {
    return driver.cuMemMap(address, size, offset, handle, 0);
  };
  facts.status("map.unreserved_address", try_map(base + kFarAway, kPageSize, 0, one));
  facts.status("map.misaligned_address", try_map(base + 4096, kPageSize, 0, one));
  facts.status("map.half_page_address", try_map(base + kMiB, kPageSize, 0, one));
  facts.status("map.size_smaller_than_handle", try_map(base, kPageSize, 0, two));
  facts.status("unmap.after_smaller", driver.cuMemUnmap(base, kPageSize));
  facts.status("map.size_larger_than_handle", try_map(base, 2 * kPageSize, 0, one));
  facts.status("map.offset_nonzero", try_map(base, kPageSize, kPageSize, two));
  const auto big = driver.create(16 * kPageSize);
  facts.status("map.piece_of_big_handle_by_offset", try_map(base, kPageSize, 4 * kPageSize, big));

  const CUdeviceptr end = base + 64 * kPageSize;
  facts.status("map.past_end_of_reservation", try_map(end, kPageSize, 0, one));
  facts.status("map.past_end_of_reservation.set_access", driver.access(end));
  facts.status("map.past_end_of_reservation.unmap", driver.cuMemUnmap(end, kPageSize));
}

void access(const Driver& driver, const Facts& facts, CUdeviceptr base) {
  const CUdeviceptr alias = base + kPageSize, large = base + 4 * kPageSize;
  facts.status("access.unmapped_range", driver.access(base + 8 * kPageSize));
  facts.status("access.range_with_hole", driver.access(base, 3 * kPageSize));
  facts.status("access.two_mappings_one_call", driver.access(base, 2 * kPageSize));
  facts.status("access.again", driver.access(base, 2 * kPageSize));
  driver.map(large, driver.create(2 * kPageSize), 2 * kPageSize);
  facts.status("access.part_of_mapping", driver.access(large, kPageSize));
  facts.status("copy.after_set_access", copy_to(driver, base));
  char seen = 0;
  must(driver.cuMemcpyDtoH(&seen, alias, 1), "cuMemcpyDtoH");
  facts.truth("alias.write_seen_through_other_mapping", seen == 'x');
  facts.status("copy.reserved_but_unmapped", copy_to(driver, base + 8 * kPageSize));
  facts.status("copy.crossing_into_unmapped", copy_to(driver, alias + kPageSize - 2048));
}

void map_and_release(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(64), alias = base + kPageSize;
  const auto handle = driver.create();
  const auto other = driver.create();
  facts.status("map.first", driver.cuMemMap(base, kPageSize, 0, handle, 0));
  facts.status("map.over_existing", driver.cuMemMap(base, kPageSize, 0, other, 0));
  facts.status("map.same_handle_twice_other_address",
               driver.cuMemMap(alias, kPageSize, 0, handle, 0));
  facts.status("copy.before_set_access", copy_to(driver, base));
  access(driver, facts, base);

  std::int64_t before = driver.free_bytes();
  facts.status("release.while_mapped", driver.cuMemRelease(handle));
  facts.number("release.while_mapped.freed_bytes", driver.free_bytes() - before);
  facts.status("copy.after_release_while_mapped", copy_to(driver, base));
  CUmemGenericAllocationHandle retained = 0;
  facts.status("retain_handle.mapped",
               driver.cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base)));
  facts.truth("retain_handle.same_value", retained == handle);
  must(driver.cuMemRelease(retained), "cuMemRelease");

  facts.status("addressfree.while_mapped", driver.cuMemAddressFree(base, 64 * kPageSize));
  facts.status("addressfree.wrong_size", driver.cuMemAddressFree(base, 32 * kPageSize));
  facts.status("addressfree.inner_address", driver.cuMemAddressFree(alias, 63 * kPageSize));
  facts.status("unmap.one_of_two_aliases", driver.cuMemUnmap(base, kPageSize));
  facts.number("unmap.one_of_two_aliases.freed_bytes", driver.free_bytes() - before);
  before = driver.free_bytes();
  facts.status("unmap.last_alias", driver.cuMemUnmap(alias, kPageSize));
  facts.number("unmap.last_alias.freed_bytes", driver.free_bytes() - before);
  facts.status("unmap.twice", driver.cuMemUnmap(alias, kPageSize));
  facts.status("copy.after_unmap", copy_to(driver, alias));
}

void unmap_ranges(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(64);
  facts.status("unmap.never_mapped", driver.cuMemUnmap(base + 32 * kPageSize, kPageSize));
  facts.status("unmap.unreserved", driver.cuMemUnmap(base + kFarAway, kPageSize));
  const auto large = driver.create(2 * kPageSize);
  driver.map(base, large, 2 * kPageSize);
  facts.status("unmap.half_of_a_mapping", driver.cuMemUnmap(base, kPageSize));
  facts.status("access.half_of_a_mapping", driver.access(base, kPageSize));
  must(driver.cuMemUnmap(base, 2 * kPageSize), "cuMemUnmap");
  for (int page = 0; page < 4; ++page) driver.page_at(base + page * kPageSize);
  facts.status("unmap.range_of_four_mappings", driver.cuMemUnmap(base, 4 * kPageSize));
  driver.page_at(base);
  driver.page_at(base + 2 * kPageSize);
  facts.status("unmap.range_with_hole", driver.cuMemUnmap(base, 3 * kPageSize));
  facts.status("unmap.range_with_hole.first_still_mapped", copy_to(driver, base));
  driver.page_at(base);
  facts.status("unmap.range_with_hole_at_end", driver.cuMemUnmap(base, 3 * kPageSize));
  facts.status("unmap.range_with_hole_at_end.first_still_mapped", copy_to(driver, base));
  facts.status("addressfree.ok", driver.cuMemAddressFree(base, 64 * kPageSize));
  facts.status("addressfree.twice", driver.cuMemAddressFree(base, 64 * kPageSize));
}

void rights(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  driver.page_at(base);
  char byte = 0;
  facts.status("rights.set_read_only",
               driver.access(base, kPageSize, CU_MEM_ACCESS_FLAGS_PROT_READ));
  facts.status("rights.read_only.copy_out", driver.cuMemcpyDtoH(&byte, base, 1));
  facts.status("rights.read_only.copy_in", copy_to(driver, base));
  facts.status("rights.read_only.sync", driver.cuCtxSynchronize());
}

void rights_none(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  driver.page_at(base);
  char byte = 0;
  facts.status("rights_none.set_none",
               driver.access(base, kPageSize, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  facts.status("rights_none.copy_out", driver.cuMemcpyDtoH(&byte, base, 1));
}

void get_access(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4), unmapped = base + kPageSize;
  driver.page_at(base);
  const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long flags = 0;
  facts.status("get_access.mapped", driver.cuMemGetAccess(&flags, &device, base));
  facts.number("get_access.mapped.flags", static_cast<std::int64_t>(flags));
  facts.status("get_access.unmapped", driver.cuMemGetAccess(&flags, &device, unmapped));
  CUmemGenericAllocationHandle handle = 0;
  facts.status("get_access.retain_of_unmapped_address",
               driver.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(unmapped)));
  unsigned type = 0;
  facts.status("get_access.pointer_attribute_of_unmapped_address",
               driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unmapped));
}

void spanning(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(8);
  driver.page_at(base);
  driver.page_at(base + kPageSize);
  const CUdeviceptr seam = base + kPageSize - 4096;
  facts.status("spanning.memset_across_two_mappings", driver.cuMemsetD8(seam, 1, 8192));
  std::vector<char> bytes(8192);
  facts.status("spanning.copy_across_two_mappings", driver.cuMemcpyDtoH(bytes.data(), seam, 8192));
  facts.status("spanning.memset_into_hole", driver.cuMemsetD8(seam + kPageSize, 1, 8192));
  facts.status("spanning.sync", driver.cuCtxSynchronize());
  facts.status("spanning.memset_in_hole", driver.cuMemsetD8(base + 3 * kPageSize, 1, 4096));
  facts.status("spanning.sync2", driver.cuCtxSynchronize());
}

void no_context_thread(const Driver& driver, const Facts& facts) {
  driver.start();
  std::thread([&] {
    const auto fact = [](const char* name) { return std::string("no_context_thread.") + name; };
    const CUmemAllocationProp prop = properties(true);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr base = 0;
    CUcontext current = nullptr;
    int fd = -1;
    facts.status(fact("create"), driver.cuMemCreate(&handle, kPageSize, &prop, 0));
    facts.status(fact("reserve"), driver.cuMemAddressReserve(&base, kPageSize, 0, 0, 0));
    facts.status(fact("map"), driver.cuMemMap(base, kPageSize, 0, handle, 0));
    facts.status(fact("set_access"), driver.access(base));
    facts.status(fact("copy"), copy_to(driver, base));
    facts.status(fact("memset"), driver.cuMemsetD8(base, 1, 4096));
    facts.status(fact("unmap"), driver.cuMemUnmap(base, kPageSize));
    facts.status(fact("ctx_sync"), driver.cuCtxSynchronize());
    facts.status(fact("get_current"), driver.cuCtxGetCurrent(&current));
    facts.truth(fact("current_is_null"), current == nullptr);
    facts.status(fact("export"), driver.cuMemExportToShareableHandle(
                                     &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    facts.status(fact("release"), driver.cuMemRelease(handle));
  }).join();
}

void after_reset(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  const auto handle = driver.page_at(base);
  std::size_t free = 0, total = 0;
  const auto fact = [](const char* name) { return std::string("after_primary_reset.") + name; };
  facts.status(fact("reset"), driver.cuDevicePrimaryCtxReset(0));
  facts.status(fact("copy"), copy_to(driver, base));
  facts.status(fact("unmap"), driver.cuMemUnmap(base, kPageSize));
  facts.status(fact("release"), driver.cuMemRelease(handle));
  facts.status(fact("mem_get_info"), driver.cuMemGetInfo(&free, &total));
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle other = 0;
  facts.status(fact("create"), driver.cuMemCreate(&other, kPageSize, &prop, 0));
}

std::int64_t free_of(const Driver& driver, CUcontext context, CUcontext back) {
  must(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  const std::int64_t free = driver.free_bytes();
  must(driver.cuCtxSetCurrent(back), "cuCtxSetCurrent");
  return free;
}

void two_devices(const Driver& driver, const Facts& facts) {
  const auto fact = [](const char* name) { return std::string("two_devices.") + name; };
  driver.start(1);
  CUcontext first = nullptr, second = nullptr;
  must(driver.cuCtxGetCurrent(&second), "cuCtxGetCurrent");
  driver.start(0);
  must(driver.cuCtxGetCurrent(&first), "cuCtxGetCurrent");
  const std::int64_t free0 = free_of(driver, first, first);
  const std::int64_t free1 = free_of(driver, second, first);
  const std::uint64_t size = 128 * kMiB;
  const CUmemAllocationProp prop = properties(false, 1);
  CUmemGenericAllocationHandle handle = 0;
  facts.status(fact("create_on_1_while_0_is_current"), driver.cuMemCreate(&handle, size, &prop, 0));
  facts.number(fact("charged_to_0"), free0 - free_of(driver, first, first));
  facts.number(fact("charged_to_1"), free1 - free_of(driver, second, first));
  const CUdeviceptr base = driver.reserve(size / kPageSize);
  const int both = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  facts.status(fact("map"), driver.cuMemMap(base, size, 0, handle, 0));
  facts.status(fact("access_for_1"), driver.access(base, size, both, 1));
  facts.status(fact("copy_with_0_current_access_only_1"), copy_to(driver, base));
  facts.status(fact("access_for_0_too"), driver.access(base, size, both, 0));
  facts.status(fact("copy_with_0_current"), copy_to(driver, base));
  std::thread([&] {
    CUcontext current = nullptr;
    must(driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    facts.truth(fact("new_thread_has_no_context"), current == nullptr);
  }).join();
}

void map_invented(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  facts.status("danger.map_invented_handle", driver.cuMemMap(base, kPageSize, 0, kInvented, 0));
}

void release_invented(const Driver& driver, const Facts& facts) {
  driver.start();
  facts.status("danger.release_invented_handle", driver.cuMemRelease(kInvented));
}

void map_released(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  const auto handle = driver.create();
  must(driver.cuMemRelease(handle), "cuMemRelease");
  facts.status("danger.map_released_handle", driver.cuMemMap(base, kPageSize, 0, handle, 0));
}

void host_read(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  driver.page_at(base);
  const char byte = *reinterpret_cast<volatile char*>(base);
  facts.number("danger.host_read_of_device_address", byte);
}

void survivable(const Driver& driver, const Facts& facts) {
  driver.start();
  const CUdeviceptr base = driver.reserve(4);
  facts.status("danger.release_zero_handle", driver.cuMemRelease(0));
  auto handle = driver.create();
  must(driver.cuMemRelease(handle), "cuMemRelease");
  facts.status("danger.release_twice_unmapped", driver.cuMemRelease(handle));
  int fd = -1;
  handle = driver.create(kPageSize, true);
  must(driver.cuMemRelease(handle), "cuMemRelease");
  facts.status("danger.export_released_handle",
               driver.cuMemExportToShareableHandle(&fd, handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  handle = driver.page_at(base);
  must(driver.cuMemRelease(handle), "cuMemRelease");
  facts.status("danger.release_twice_while_mapped", driver.cuMemRelease(handle));
  facts.status("danger.map_released_but_mapped_handle",
               driver.cuMemMap(base + kPageSize, kPageSize, 0, handle, 0));
  const CUdeviceptr gone = driver.reserve(4);
  must(driver.cuMemAddressFree(gone, 4 * kPageSize), "cuMemAddressFree");
  facts.status("danger.map_after_addressfree",
               driver.cuMemMap(gone, kPageSize, 0, driver.create(), 0));
  // It ends with all that still mapped.
  facts.status("danger.exit_with_live_mappings", CUDA_SUCCESS);
}

constexpr auto kNothing = Probe::Needs::kNothing;
constexpr auto kDies = Probe::End::kSignal;
constexpr auto kEnds = Probe::End::kProcess;

}  // namespace

const Probe kPageProbes[] = {
    {"before_init", before_init},
    {"no_current_context", no_context},
    {"reserve", reserve},
    {"create", create},
    {"map", map_refused},
    {"map_and_release", map_and_release},
    {"unmap", unmap_ranges},
    {"danger", survivable},
    {"danger.map_invented_handle", map_invented, kNothing, kDies},
    {"danger.release_invented_handle", release_invented, kNothing, kDies},
    {"danger.map_released_handle", map_released, kNothing, kDies},
    {"danger.host_read_of_device_address", host_read, kNothing, kDies},
    {"rights", rights, kNothing, kEnds},
    {"rights_none", rights_none, kNothing, kEnds},
    {"get_access", get_access, kNothing, kEnds},
    {"spanning", spanning, kNothing, kEnds},
    {"no_context_thread", no_context_thread, kNothing, kEnds},
    {"after_primary_reset", after_reset, kNothing, kEnds},
    {"two_devices", two_devices, Probe::Needs::kTwoDevices, kEnds},
    {nullptr, nullptr},
};

}  // namespace kv::card
