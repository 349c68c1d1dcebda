// The four files that are the card's state: `ledger` (accounts), `memory` (the bytes), `owners` and
// `exports` (a locked byte each says that a process lives, that a descriptor is open somewhere).
// They lie in the directory that all processes of a run name, or, without one, nowhere: then the
// files have no name and the card is this process's own.
//
// Threads: open() once; afterwards constant. Ownership: the descriptors are the store's.
#ifndef FAKES_CARD_STORE_H_
#define FAKES_CARD_STORE_H_

#include <string>

#include "kvcore/base/unique_fd.h"

namespace kv::card {

struct Store {
  UniqueFd ledger, memory, owners, exports;

  // Opens or creates the files; `directory` is made when absent. False: `error` says what failed.
  bool open(const std::string& directory, std::string* error);
};

}  // namespace kv::card

#endif  // FAKES_CARD_STORE_H_
