// The ledger: the file in which all processes of a run keep the card's accounts. First what the
// harness also knows (header, devices, owners; harness/process/card_ledger.h has the same layout of
// its own and ledger_test.cc compares the two), then the card's own tables.
//
// Threads: devices, slots and tables are changed only under Tables::mutex (see accounts.h); the
// counts of an owner only by its process, atomically. Ownership: the mapping lives as long as the
// process.
#ifndef FAKES_CARD_LEDGER_H_
#define FAKES_CARD_LEDGER_H_

#include <pthread.h>

#include <cstdint>
#include <string>

#include "fakes/card/config.h"
#include "fakes/card/store.h"

namespace kv::card {

inline constexpr char kLedgerMagic[8] = {'k', 'v', 'c', 'a', 'r', 'd', '1', '\0'};
inline constexpr std::uint32_t kLedgerVersion = 1;

// ---- Shared with the harness, little endian --------------------------------------------------
struct LedgerHeader {
  char magic[8];  // written last: with it the file is complete
  std::uint32_t version;
  std::uint32_t devices;
  std::uint32_t device_size;
  std::uint32_t owners;  // slots ever used; a slot is never used again
  std::uint32_t owner_size;
  std::uint32_t owner_capacity;
  std::uint64_t devices_offset;
  std::uint64_t owners_offset;
  std::uint64_t change;
};
struct LedgerDevice {
  std::uint64_t total_bytes;
  std::uint64_t used_bytes;  // of physical memory that anything keeps alive
};
// What a process holds, by its own calls. Not cleared at its end: it then says what it left.
struct LedgerOwner {
  std::int32_t pid;
  std::uint32_t reserved0;
  char process[48];
  std::uint64_t bytes;
  std::uint64_t handles;
  std::uint64_t mappings;  // an opened IPC handle is one too
  std::uint64_t reservations;
  std::uint64_t reserved_bytes;
  std::uint64_t allocations;
  std::uint64_t exports;
  std::uint64_t contexts;
};

// ---- The card's own --------------------------------------------------------------------------
// Physical memory: an extent of the memory file. A slot given back keeps its extent for the next
// of the same size.
struct AllocationSlot {
  std::uint32_t live;
  std::uint32_t generation;  // goes up when the slot is given back
  std::uint32_t device;
  std::uint32_t creator;     // owner slot
  std::uint32_t references;  // sum of the reference slots
  std::uint32_t exports;     // sum of the export slots
  std::uint32_t next_free;   // slot + 1
  std::uint32_t reserved;
  std::uint64_t size;
  std::uint64_t offset;
};
// An owner keeps an allocation alive.
struct ReferenceSlot {
  std::uint32_t owner;       // slot + 1; 0: free
  std::uint32_t allocation;  // slot
  std::uint32_t next_free;
  std::uint32_t reserved;
};
// A descriptor keeps an allocation alive while the slot's byte in `exports` is locked.
struct ExportSlot {
  std::uint32_t allocation;  // slot + 1; 0: free
  std::uint32_t next_free;
};

inline constexpr std::uint32_t kOwners = 4096;
inline constexpr std::uint32_t kAllocations = 1u << 17;  // 256 GiB of 2 MiB pages
inline constexpr std::uint32_t kReferences = 1u << 18;
inline constexpr std::uint32_t kExports = 1u << 16;

struct Tables {
  pthread_mutex_t mutex;
  std::uint64_t card;        // random: names this card in IPC handles
  std::uint64_t memory_end;  // the memory file was never used from here on
  std::uint32_t allocations_used, references_used, exports_used;  // slots ever used
  std::uint32_t free_allocation, free_reference, free_export;     // slot + 1; 0: none
  std::uint32_t orphans;         // allocations that only descriptors keep alive
  std::uint32_t alive[kOwners];  // 1 from attaching until its references were taken back
  AllocationSlot allocations[kAllocations];
  ReferenceSlot references[kReferences];
  ExportSlot exports[kExports];
};

// The whole file.
struct LedgerFile {
  LedgerHeader header;
  LedgerDevice devices[kMaxDevices];
  LedgerOwner owners[kOwners];
  Tables tables;
};

// Maps the ledger and, whoever comes first, writes it as `config` says; one that is already there
// keeps its own numbers. Null: `error` says why.
LedgerFile* open_ledger(const Store& store, const Config& config, std::string* error);

}  // namespace kv::card

#endif  // FAKES_CARD_LEDGER_H_
