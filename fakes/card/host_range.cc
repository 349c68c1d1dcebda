#include "fakes/card/host_range.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "fakes/card/report.h"

namespace kv::card {
namespace {

constexpr std::uint64_t kHostPage = 4096;

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

CUdeviceptr reserve_host_range(std::uint64_t size, std::uint64_t alignment) {
  alignment = std::max(alignment, kHostPage);
  const std::uint64_t room = size + alignment - kHostPage;
  if (room < size) return 0;
  void* mapping =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    complain("no " + std::to_string(room) +
             " bytes of address space to be had: " + std::generic_category().message(errno));
    return 0;
  }
  const auto start = reinterpret_cast<std::uintptr_t>(mapping);
  const std::uint64_t address = (start + alignment - 1) & ~(alignment - 1);
  if (address > start) ::munmap(mapping, address - start);
  const std::uint64_t end = start + room;
  if (end > address + size) ::munmap(pointer(address + size), end - (address + size));
  return address;
}

void free_host_range(CUdeviceptr address, std::uint64_t size) {
  ::munmap(pointer(address), size);
}

}  // namespace kv::card
