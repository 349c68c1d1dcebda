#include "fakes/card/address_space.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fakes/card/host_range.h"

namespace kv::card {
namespace {

// The recorded driver maps behind the end of a reservation without complaint; this much is known to
// belong to it.
constexpr std::uint64_t kSlack = 16 * kPageSize;

bool page_aligned(std::uint64_t value) {
  return value % kPageSize == 0;
}

}  // namespace

Physical::Physical(Accounts& accounts, const Lease& lease) : accounts_(accounts), lease_(lease) {
  accounts_.count(&LedgerOwner::bytes, static_cast<std::int64_t>(lease_.size));
}

Physical::~Physical() {
  accounts_.leave(lease_);
  accounts_.count(&LedgerOwner::bytes, -static_cast<std::int64_t>(lease_.size));
}

CUresult AddressSpace::reserve(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address) {
  if (size == 0 || !page_aligned(size) || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t room = size + kSlack;
  if (room < size) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUdeviceptr start = reserve_host_range(room, std::max(alignment, kPageSize));
  if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    const MutexLock lock(mutex_);
    reservations_[start] = {size, room};
  }
  accounts_.count(&LedgerOwner::reservations, 1);
  accounts_.count(&LedgerOwner::reserved_bytes, static_cast<std::int64_t>(size));
  *address = start;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::free_range(CUdeviceptr address, std::uint64_t size) {
  std::uint64_t room = 0;
  {
    const MutexLock lock(mutex_);
    const auto reservation = reservations_.find(address);
    if (reservation == reservations_.end() || reservation->second.size != size) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    room = reservation->second.room;
    const auto mapping = mappings_.lower_bound(address);
    if (mapping != mappings_.end() && mapping->first < address + room) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    reservations_.erase(reservation);
  }
  free_host_range(address, room);
  accounts_.count(&LedgerOwner::reservations, -1);
  accounts_.count(&LedgerOwner::reserved_bytes, -static_cast<std::int64_t>(size));
  return CUDA_SUCCESS;
}

// The mapping that holds `address`, or end().
AddressSpace::Mappings::iterator AddressSpace::at(CUdeviceptr address) {
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return mappings_.end();
  const auto mapping = std::prev(next);
  return address - mapping->first < mapping->second.size ? mapping : mappings_.end();
}

bool AddressSpace::inside_a_reservation(CUdeviceptr address, std::uint64_t size) {
  const auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return false;
  const auto& [start, reservation] = *std::prev(next);
  const std::uint64_t offset = address - start;
  return offset < reservation.room && size <= reservation.room - offset;
}

// No mapping lies half inside the range.
bool AddressSpace::whole_mappings(CUdeviceptr address, std::uint64_t size) {
  const auto first = at(address);
  if (first != mappings_.end() && first->first != address) return false;
  const auto last = at(address + size - 1);
  return last == mappings_.end() || last->first + last->second.size == address + size;
}

// Every byte of the range is mapped.
bool AddressSpace::covered(CUdeviceptr address, std::uint64_t size) {
  const CUdeviceptr end = address + size;
  while (address < end) {
    const auto mapping = at(address);
    if (mapping == mappings_.end()) return false;
    address = mapping->first + mapping->second.size;
  }
  return true;
}

CUresult AddressSpace::map(CUdeviceptr address, std::uint64_t size, std::uint64_t offset,
                           CUmemGenericAllocationHandle handle) {
  const MutexLock lock(mutex_);
  if (size == 0 || !page_aligned(size) || !page_aligned(address) || handle == 0 ||
      !inside_a_reservation(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto found = handles_.find(handle);
  if (found == handles_.end()) die_of_handle(handle, "cuMemMap");
  if (offset != 0 || size != found->second.memory->lease().size) return CUDA_ERROR_NOT_SUPPORTED;
  const auto next = mappings_.lower_bound(address);
  if (at(address) != mappings_.end() || (next != mappings_.end() && next->first < address + size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Mapping mapping;
  mapping.size = size;
  mapping.memory = found->second.memory;
  mapping.handle = handle;
  mappings_.emplace(address, std::move(mapping));
  ++found->second.mappings;
  accounts_.count(&LedgerOwner::mappings, 1);
  return CUDA_SUCCESS;
}

// Removes a mapping and what lives only by it; the caller lets go of the memory without the lock.
PhysicalPtr AddressSpace::take_away(Mappings::iterator mapping) {
  PhysicalPtr memory = std::move(mapping->second.memory);
  const auto handle = handles_.find(mapping->second.handle);
  if (handle != handles_.end() && --handle->second.mappings == 0 &&
      handle->second.references == 0) {
    handles_.erase(handle);
  }
  mappings_.erase(mapping);
  return memory;
}

CUresult AddressSpace::unmap(CUdeviceptr address, std::uint64_t size) {
  std::vector<PhysicalPtr> given_back;
  {
    const MutexLock lock(mutex_);
    if (size == 0 || !page_aligned(size) || !page_aligned(address) ||
        !inside_a_reservation(address, size) || !whole_mappings(address, size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Holes are skipped, and a range without any mapping is fine (recorded).
    auto mapping = mappings_.lower_bound(address);
    while (mapping != mappings_.end() && mapping->first < address + size) {
      given_back.push_back(take_away(mapping++));
    }
  }
  accounts_.count(&LedgerOwner::mappings, -static_cast<std::int64_t>(given_back.size()));
  return CUDA_SUCCESS;
}

CUresult AddressSpace::set_access(CUdeviceptr address, std::uint64_t size,
                                  const CUmemAccessDesc* access, std::size_t count) {
  for (std::size_t index = 0; index < count; ++index) {
    const CUmemAccessDesc& wanted = access[index];
    const bool known = wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                       wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                       wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!known || wanted.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (wanted.location.id < 0 || wanted.location.id >= static_cast<int>(accounts_.devices())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
  }
  const MutexLock lock(mutex_);
  if (size == 0 || count == 0 || !inside_a_reservation(address, size) ||
      !whole_mappings(address, size) || !covered(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (auto mapping = at(address); mapping != mappings_.end() && mapping->first < address + size;
       ++mapping) {
    for (std::size_t index = 0; index < count; ++index) {
      mapping->second.access.at(static_cast<std::size_t>(access[index].location.id)) =
          static_cast<std::uint8_t>(access[index].flags);
    }
  }
  return CUDA_SUCCESS;
}

CUresult AddressSpace::get_access(CUdeviceptr address, int device, unsigned long long* flags) {
  const MutexLock lock(mutex_);
  const auto mapping = at(address);
  if (mapping == mappings_.end() || mapping->second.handle == 0) return CUDA_ERROR_INVALID_VALUE;
  *flags = mapping->second.access.at(static_cast<std::size_t>(device));
  return CUDA_SUCCESS;
}

bool AddressSpace::find(CUdeviceptr address, Region* region) {
  const MutexLock lock(mutex_);
  const auto found = at(address);
  if (found == mappings_.end()) return false;
  const Mapping& mapping = found->second;
  const auto handle = handles_.find(mapping.handle);
  *region = {found->first,
             mapping.size,
             static_cast<int>(mapping.memory->lease().device),
             mapping.handle == 0,
             handle != handles_.end() && handle->second.exportable,
             mapping.context};
  return true;
}

bool AddressSpace::pieces(CUdeviceptr address, std::uint64_t size, int device, bool write,
                          std::vector<Piece>* result) {
  const std::uint8_t need =
      write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  const MutexLock lock(mutex_);
  while (size > 0) {
    const auto found = at(address);
    if (found == mappings_.end()) return false;
    const Mapping& mapping = found->second;
    if ((mapping.access.at(static_cast<std::size_t>(device)) & need) != need) return false;
    const std::uint64_t skipped = address - found->first;
    const std::uint64_t part = std::min(size, mapping.size - skipped);
    result->push_back({mapping.memory, mapping.memory->lease().offset + skipped, part});
    address += part;
    size -= part;
  }
  return true;
}

}  // namespace kv::card
