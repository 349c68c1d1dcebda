// The part of the accounts that gives back: what is left, what the dead left, and the sums after a
// death in the middle of a change.
#include <algorithm>
#include <vector>

#include "fakes/card/accounts.h"
#include "fakes/card/accounts_lock.h"
#include "fakes/card/byte_lock.h"
#include "fakes/card/tear.h"

namespace kv::card {

// The bytes go first: a process that dies between the two stores leaves a live allocation that
// nothing refers to, and repair() gives that back again.
void Accounts::give_back(std::uint32_t allocation) {
  Tables& tables = file_->tables;
  AllocationSlot& memory = tables.allocations[allocation];
  memory_.give_back(memory.offset, memory.size);
  tear();
  ++memory.generation;
  memory.live = 0;
  tear();
  file_->devices[memory.device].used_bytes -= memory.size;
  memory.next_free = tables.free_allocation;
  tables.free_allocation = allocation + 1;
}

void Accounts::drop_reference(std::uint32_t reference) {
  Tables& tables = file_->tables;
  ReferenceSlot& slot = tables.references[reference];
  AllocationSlot& memory = tables.allocations[slot.allocation];
  slot.owner = 0;
  tear();
  slot.next_free = tables.free_reference;
  tables.free_reference = reference + 1;
  if (--memory.references > 0) return;
  tear();
  if (memory.exports == 0) {
    give_back(slot.allocation);
    return;
  }
  ++tables.orphans;
  drop_exports(slot.allocation);
}

// Forgets the exports of an allocation whose descriptors are closed everywhere, and gives it back
// if that was the last that kept it.
void Accounts::drop_exports(std::uint32_t allocation) {
  Tables& tables = file_->tables;
  AllocationSlot& memory = tables.allocations[allocation];
  for (std::uint32_t slot = 0; slot < tables.exports_used && memory.exports > 0; ++slot) {
    ExportSlot& exported = tables.exports[slot];
    if (exported.allocation != allocation + 1) continue;
    if (byte_is_locked(store_.exports.get(), slot)) continue;
    exported.allocation = 0;
    tear();
    exported.next_free = tables.free_export;
    tables.free_export = slot + 1;
    --memory.exports;
  }
  if (memory.exports > 0 || memory.references > 0) return;
  --tables.orphans;
  give_back(allocation);
}

void Accounts::bury_orphans() {
  Tables& tables = file_->tables;
  for (std::uint32_t slot = 0; slot < tables.allocations_used && tables.orphans > 0; ++slot) {
    const AllocationSlot& memory = tables.allocations[slot];
    if (memory.live != 0 && memory.references == 0) drop_exports(slot);
  }
}

void Accounts::bury_the_dead() {
  Tables& tables = file_->tables;
  std::vector<bool> dead;
  for (std::uint32_t owner = 0; owner < file_->header.owners; ++owner) {
    if (tables.alive[owner] == 0 || byte_is_locked(store_.owners.get(), owner)) continue;
    dead.resize(file_->header.owners);
    dead[owner] = true;
  }
  if (!dead.empty()) {
    for (std::uint32_t slot = 0; slot < tables.references_used; ++slot) {
      const std::uint32_t owner = tables.references[slot].owner;
      if (owner != 0 && owner <= dead.size() && dead[owner - 1]) drop_reference(slot);
    }
    tear();
    for (std::uint32_t owner = 0; owner < dead.size(); ++owner) {
      if (dead[owner]) tables.alive[owner] = 0;
    }
  }
  bury_orphans();
}

// Computes everything that is a sum or a list from the slots, which are never half done.
void Accounts::repair() {
  Tables& tables = file_->tables;
  for (std::uint32_t device = 0; device < devices(); ++device)
    file_->devices[device].used_bytes = 0;
  tables.free_allocation = tables.free_reference = tables.free_export = tables.orphans = 0;
  for (std::uint32_t slot = 0; slot < tables.allocations_used; ++slot) {
    tables.allocations[slot].references = tables.allocations[slot].exports = 0;
  }
  for (std::uint32_t slot = tables.references_used; slot-- > 0;) {
    ReferenceSlot& reference = tables.references[slot];
    if (reference.owner != 0) {
      ++tables.allocations[reference.allocation].references;
    } else {
      reference.next_free = tables.free_reference;
      tables.free_reference = slot + 1;
    }
  }
  for (std::uint32_t slot = tables.exports_used; slot-- > 0;) {
    ExportSlot& exported = tables.exports[slot];
    if (exported.allocation != 0) {
      ++tables.allocations[exported.allocation - 1].exports;
    } else {
      exported.next_free = tables.free_export;
      tables.free_export = slot + 1;
    }
  }
  tear();
  tables.memory_end = 0;
  for (std::uint32_t slot = tables.allocations_used; slot-- > 0;) {
    AllocationSlot& memory = tables.allocations[slot];
    tables.memory_end = std::max(tables.memory_end, memory.offset + memory.size);
    file_->devices[memory.device].used_bytes += memory.live != 0 ? memory.size : 0;
    if (memory.live == 0) {
      memory.next_free = tables.free_allocation;
      tables.free_allocation = slot + 1;
    } else if (memory.references == 0 && memory.exports == 0) {
      give_back(slot);
    } else if (memory.references == 0) {
      ++tables.orphans;
    }
  }
}

}  // namespace kv::card
