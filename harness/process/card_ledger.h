// Reads the fake card's ledger file: what each process holds of each device, and what it still
// held when it ended. The layout is known here independently of the card (a test in fakes/card
// compares the two); only the header, the devices and the owners are read, never the card's own
// tables.
//
// Threads: the supervisor's single thread; the card's processes write meanwhile, so numbers of a
// living process are a moment's. Ownership: values.
#ifndef HARNESS_PROCESS_CARD_LEDGER_H_
#define HARNESS_PROCESS_CARD_LEDGER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace kv::drill {

// The file's layout, little endian, version 1.
struct LedgerHeader {
  char magic[8];  // "kvcard1\0"
  std::uint32_t version;
  std::uint32_t devices;
  std::uint32_t device_size;  // bytes of one LedgerDevice
  std::uint32_t owners;       // slots that were ever used (they are never used again in a run)
  std::uint32_t owner_size;   // bytes of one LedgerOwner
  std::uint32_t owner_capacity;
  std::uint64_t devices_offset;
  std::uint64_t owners_offset;
  std::uint64_t change;  // goes up with every change
};
struct LedgerDevice {
  std::uint64_t total_bytes;
  std::uint64_t used_bytes;
};
// One process that initialised the card. Counts are the process's own, kept current by its calls;
// nobody clears them when it dies: they then say what it left for the driver to clean up.
struct LedgerOwner {
  std::int32_t pid;
  std::uint32_t reserved0;
  char process[48];       // KVDRILL_PROCESS, or empty
  std::uint64_t bytes;    // of physical memory it holds by handle, mapping or plain allocation
  std::uint64_t handles;  // created, imported or retained and not released
  std::uint64_t mappings;
  std::uint64_t reservations;
  std::uint64_t reserved_bytes;
  std::uint64_t allocations;  // cuMemAlloc and not freed
  std::uint64_t exports;      // descriptors exported by it so far (a count, not what is open)
  std::uint64_t contexts;     // primary contexts retained and not released
};

struct Holding {
  std::int32_t pid = 0;
  std::string process;
  std::uint64_t bytes = 0, handles = 0, mappings = 0, reservations = 0, allocations = 0,
                contexts = 0;
  std::uint64_t exports = 0;  // made so far, not what is open
};

struct CardState {
  std::vector<LedgerDevice> devices;
  std::vector<Holding> owners;
};

// Whether this driver library is the fake card, wherever it lies: it has the card's own controls
// among its symbols (fakes/card/kvcard.h). The library is not loaded. False also when unreadable.
bool is_fake_card(const std::string& driver);

// Absent file: a state without devices (no process touched the card). Error: not a ledger.
tl::expected<CardState, std::string> read_ledger(const std::string& path);

}  // namespace kv::drill

#endif  // HARNESS_PROCESS_CARD_LEDGER_H_
