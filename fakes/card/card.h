// The card as one process has it: up from cuInit on, gone for good once the exit handlers reach it,
// and never usable in a child that was forked from a process that had it up (all recorded).
//
// Threads: any. Ownership: one object a process, never destroyed: calls may come from the last
// destructor.
#ifndef FAKES_CARD_CARD_H_
#define FAKES_CARD_CARD_H_

#include <utility>

#include "fakes/card/accounts.h"
#include "fakes/card/address_space.h"
#include "fakes/card/config.h"
#include "fakes/card/contexts.h"
#include "fakes/card/memory_file.h"
#include "fakes/card/store.h"
#include "fakes/card/streams.h"

namespace kv::card {

struct Card {
  Card(Store its_store, LedgerFile* ledger)
      : store(std::move(its_store)),
        memory(store.memory.get()),
        accounts(store, memory, ledger),
        space(accounts) {}

  const Store store;
  const MemoryFile memory;
  Accounts accounts;
  AddressSpace space;
  Contexts contexts;
  Streams streams;

  bool has_device(int device) const {
    return device >= 0 && device < static_cast<int>(accounts.devices());
  }
};

// Brings the card up; again: nothing more to do.
CUresult start_card();
// NOT_INITIALIZED before start_card() and in a forked child, DEINITIALIZED once it went down.
CUresult card_if_up(Card** card);
bool card_went_down();

}  // namespace kv::card

#endif  // FAKES_CARD_CARD_H_
