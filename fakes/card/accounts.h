// Who holds how much of which device, across all processes of a run: physical memory is created,
// joined and left here, and lives as long as a living process or an open descriptor keeps it.
//
// The lock is a robust mutex in the ledger rather than a file lock: it costs no call into the
// kernel when free, excludes threads as well as processes, and its EOWNERDEAD says exactly when a
// process died in the middle, which is when the sums must be computed anew from the slots. Each
// slot is taken and given back by one store, so the slots themselves are never half done. It is
// not held while anything waits, and no point lies inside it.
//
// Threads: any. Ownership: this process's owner slot and the lock on its byte.
#ifndef FAKES_CARD_ACCOUNTS_H_
#define FAKES_CARD_ACCOUNTS_H_

#include <cstdint>
#include <string>

#include "fakes/card/cuda_abi.h"
#include "fakes/card/ledger.h"
#include "fakes/card/memory_file.h"
#include "fakes/card/store.h"

namespace kv::card {

// What one process holds of one allocation: physical memory that is there until leave().
struct Lease {
  std::uint32_t allocation = 0, generation = 0, reference = 0, device = 0;
  std::uint64_t size = 0, offset = 0;
  bool created_here = false;  // by this process
};

// Names an allocation to another process.
struct AllocationName {
  std::uint64_t card;
  std::uint32_t allocation, generation;
  std::uint64_t size;  // as it was asked for; the accounts do not look at it
};

class Accounts {
 public:
  // `file` is the mapped ledger.
  Accounts(const Store& store, const MemoryFile& memory, LedgerFile* file)
      : store_(store), memory_(memory), file_(file) {}

  // Takes an owner slot and locks its byte. False: no slot or no descriptor; `error` says.
  bool attach(const std::string& process, std::string* error);
  // In a forked child: lets go of the parent's byte. Only closes a descriptor.
  void forget_after_fork() { alive_.reset(); }

  std::uint32_t devices() const { return file_->header.devices; }
  std::uint64_t total_bytes(int device) const { return file_->devices[device].total_bytes; }
  // Bytes of the device that nothing keeps, after the dead have given back.
  std::uint64_t free_bytes(int device);

  // OUT_OF_MEMORY: the device has not that much free, or the tables are full.
  CUresult create(int device, std::uint64_t size, Lease* lease);
  void leave(const Lease& lease);
  // Another hold on what was created elsewhere. INVALID_VALUE: it is gone, or another card's.
  CUresult join(const AllocationName& name, Lease* lease);
  AllocationName name(const Lease& lease) const;

  // A new descriptor that keeps the memory alive while it is open anywhere.
  CUresult export_descriptor(const Lease& lease, int* fd);
  // INVALID_VALUE: not a descriptor of this card. UNKNOWN: not a descriptor.
  CUresult join_descriptor(int fd, Lease* lease);

  // Adds to a count of this process's record.
  void count(std::uint64_t LedgerOwner::*what, std::int64_t change);

  std::uint32_t owner() const { return owner_; }

 private:
  class Locked;

  void repair();
  void bury_the_dead();
  void bury_orphans();
  void drop_exports(std::uint32_t allocation);
  void drop_reference(std::uint32_t reference);
  void give_back(std::uint32_t allocation);
  bool refer(std::uint32_t allocation, Lease* lease);
  std::uint32_t take_allocation(std::uint64_t size);
  void changed();

  const Store& store_;
  const MemoryFile memory_;
  LedgerFile* const file_;
  std::uint32_t owner_ = 0;
  UniqueFd alive_;  // holds the lock on byte owner_ of `owners`; nothing else uses it
};

}  // namespace kv::card

#endif  // FAKES_CARD_ACCOUNTS_H_
