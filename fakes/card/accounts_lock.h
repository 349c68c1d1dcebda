// Holds the ledger's mutex; part of accounts.cc and accounts_repair.cc.
//
// Threads: as Accounts. Ownership: the lock, from construction to destruction.
#ifndef FAKES_CARD_ACCOUNTS_LOCK_H_
#define FAKES_CARD_ACCOUNTS_LOCK_H_

#include <cerrno>

#include "fakes/card/accounts.h"

namespace kv::card {

class Accounts::Locked {
 public:
  explicit Locked(Accounts& accounts) : accounts_(accounts) {
    pthread_mutex_t* mutex = &accounts_.file_->tables.mutex;
    if (::pthread_mutex_lock(mutex) == EOWNERDEAD) {
      // Consistent only afterwards: if this process dies in the repair, the next one repairs.
      accounts_.repair();
      ::pthread_mutex_consistent(mutex);
    }
  }
  ~Locked() {
    accounts_.changed();
    ::pthread_mutex_unlock(&accounts_.file_->tables.mutex);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Accounts& accounts_;
};

}  // namespace kv::card

#endif  // FAKES_CARD_ACCOUNTS_LOCK_H_
