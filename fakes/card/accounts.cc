#include "fakes/card/accounts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "fakes/card/accounts_lock.h"
#include "fakes/card/byte_lock.h"
#include "fakes/card/report.h"
#include "fakes/card/tear.h"

namespace kv::card {

bool Accounts::attach(const std::string& process, std::string* error) {
  alive_.reset(reopen(store_.owners.get()));
  if (!alive_) {
    *error = "owners: " + std::generic_category().message(errno);
    return false;
  }
  const Locked locked(*this);
  const std::uint32_t slot = file_->header.owners;
  if (slot >= kOwners) {
    *error = "ledger: all " + std::to_string(kOwners) + " owner slots of this run are used up";
    return false;
  }
  if (!lock_byte(alive_.get(), slot)) {
    *error = "owners: byte " + std::to_string(slot) + " is locked by somebody else";
    return false;
  }
  LedgerOwner& mine = file_->owners[slot];
  mine = {};
  mine.pid = ::getpid();
  process.copy(mine.process, sizeof mine.process - 1);
  tear();
  file_->tables.alive[slot] = 1;
  tear();
  file_->header.owners = slot + 1;
  owner_ = slot;
  return true;
}

std::uint64_t Accounts::free_bytes(int device) {
  const Locked locked(*this);
  bury_the_dead();
  const LedgerDevice& account = file_->devices[device];
  return account.total_bytes - account.used_bytes;
}

// A slot whose extent has this size, or one with a new extent; kAllocations: none left.
std::uint32_t Accounts::take_allocation(std::uint64_t size) {
  Tables& tables = file_->tables;
  // Pages of a run are mostly of one size, so the first few free slots tell.
  constexpr int kLook = 8;
  std::uint32_t* link = &tables.free_allocation;
  for (int looked = 0; *link != 0 && looked < kLook; ++looked) {
    const std::uint32_t slot = *link - 1;
    if (tables.allocations[slot].size == size) {
      *link = tables.allocations[slot].next_free;
      return slot;
    }
    link = &tables.allocations[slot].next_free;
  }
  std::uint32_t slot = 0;
  if (tables.allocations_used < kAllocations) {
    slot = tables.allocations_used++;
  } else if (tables.free_allocation != 0) {
    slot = tables.free_allocation - 1;
    tables.free_allocation = tables.allocations[slot].next_free;
  } else {
    return kAllocations;
  }
  // At no moment does the slot name bytes that belong to another.
  AllocationSlot& memory = tables.allocations[slot];
  memory.size = 0;
  tear();
  memory.offset = tables.memory_end;
  tear();
  memory.size = size;
  tables.memory_end += size;
  return slot;
}

// This process refers to the allocation. False: no reference slot is left.
bool Accounts::refer(std::uint32_t allocation, Lease* lease) {
  Tables& tables = file_->tables;
  std::uint32_t slot = 0;
  if (tables.free_reference != 0) {
    slot = tables.free_reference - 1;
    tables.free_reference = tables.references[slot].next_free;
  } else if (tables.references_used < kReferences) {
    slot = tables.references_used++;
  } else {
    complain("ledger: all " + std::to_string(kReferences) + " references are used up");
    return false;
  }
  tear();
  AllocationSlot& memory = tables.allocations[allocation];
  tables.references[slot].allocation = allocation;
  tear();
  tables.references[slot].owner = owner_ + 1;
  tear();
  if (memory.references++ == 0 && memory.exports > 0) --tables.orphans;
  *lease = {allocation,    memory.generation,       slot, memory.device, memory.size,
            memory.offset, memory.creator == owner_};
  return true;
}

CUresult Accounts::create(int device, std::uint64_t size, Lease* lease) {
  const Locked locked(*this);
  bury_the_dead();
  LedgerDevice& account = file_->devices[device];
  if (size > account.total_bytes - account.used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint32_t slot = take_allocation(size);
  if (slot == kAllocations) {
    complain("ledger: all " + std::to_string(kAllocations) + " allocations are used up");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  tear();
  AllocationSlot& memory = file_->tables.allocations[slot];
  memory.device = static_cast<std::uint32_t>(device);
  memory.creator = owner_;
  memory.references = 0;
  memory.exports = 0;
  tear();
  memory.live = 1;
  account.used_bytes += size;
  tear();
  if (refer(slot, lease)) return CUDA_SUCCESS;
  give_back(slot);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void Accounts::leave(const Lease& lease) {
  const Locked locked(*this);
  drop_reference(lease.reference);
}

CUresult Accounts::join(const AllocationName& wanted, Lease* lease) {
  const Locked locked(*this);
  bury_the_dead();
  if (wanted.card != file_->tables.card || wanted.allocation >= file_->tables.allocations_used) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const AllocationSlot& memory = file_->tables.allocations[wanted.allocation];
  if (memory.live == 0 || memory.generation != wanted.generation) return CUDA_ERROR_INVALID_VALUE;
  return refer(wanted.allocation, lease) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

AllocationName Accounts::name(const Lease& lease) const {
  return {file_->tables.card, lease.allocation, lease.generation, lease.size};
}

CUresult Accounts::export_descriptor(const Lease& lease, int* fd) {
  UniqueFd descriptor(reopen(store_.exports.get()));
  if (!descriptor) {
    complain("export: " + std::generic_category().message(errno));
    return CUDA_ERROR_UNKNOWN;
  }
  const Locked locked(*this);
  Tables& tables = file_->tables;
  if (tables.free_export == 0 && tables.exports_used == kExports) {
    for (std::uint32_t slot = 0; slot < tables.allocations_used; ++slot) {
      if (tables.allocations[slot].exports > 0) drop_exports(slot);
    }
  }
  std::uint32_t slot = 0;
  if (tables.free_export != 0) {
    slot = tables.free_export - 1;
    tables.free_export = tables.exports[slot].next_free;
  } else if (tables.exports_used < kExports) {
    slot = tables.exports_used++;
  } else {
    complain("ledger: all " + std::to_string(kExports) + " exports are open");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // The file position names the slot: it is shared by all copies of the descriptor.
  if (!lock_byte(descriptor.get(), slot) ||
      ::lseek(descriptor.get(), static_cast<off_t>(slot), SEEK_SET) < 0) {
    complain("export: byte " + std::to_string(slot) + " is locked by somebody else");
    return CUDA_ERROR_UNKNOWN;
  }
  tear();
  tables.exports[slot].allocation = lease.allocation + 1;
  tear();
  ++tables.allocations[lease.allocation].exports;
  *fd = descriptor.release();
  return CUDA_SUCCESS;
}

CUresult Accounts::join_descriptor(int fd, Lease* lease) {
  struct stat theirs = {}, ours = {};
  if (::fstat(fd, &theirs) != 0) return CUDA_ERROR_UNKNOWN;
  if (::fstat(store_.exports.get(), &ours) != 0) return CUDA_ERROR_UNKNOWN;
  if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino) return CUDA_ERROR_INVALID_VALUE;
  const off_t slot = ::lseek(fd, 0, SEEK_CUR);
  const Locked locked(*this);
  bury_the_dead();
  const Tables& tables = file_->tables;
  if (slot < 0 || slot >= static_cast<off_t>(tables.exports_used)) return CUDA_ERROR_INVALID_VALUE;
  const auto index = static_cast<std::uint64_t>(slot);
  // Locked, and by this very description: then it is the descriptor that was given out.
  if (!byte_is_locked(store_.exports.get(), index) || byte_is_locked(fd, index) ||
      tables.exports[index].allocation == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return refer(tables.exports[index].allocation - 1, lease) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_OUT_OF_MEMORY;
}

void Accounts::count(std::uint64_t LedgerOwner::*what, std::int64_t change) {
  std::atomic_ref<std::uint64_t> value(file_->owners[owner_].*what);
  value.fetch_add(static_cast<std::uint64_t>(change), std::memory_order_relaxed);
  changed();
}

void Accounts::changed() {
  std::atomic_ref<std::uint64_t>(file_->header.change).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace kv::card
