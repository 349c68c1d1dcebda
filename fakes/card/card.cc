#include "fakes/card/card.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "fakes/card/report.h"
#include "kvcore/base/thread_annotations.h"

namespace kv::card {
namespace {

enum class State { kNew, kStarting, kUp, kDown, kForked };
std::atomic<State> state{State::kNew};
std::atomic<Card*> the_card{nullptr};

// Registered by the first cuInit: handlers registered after it still find the card up, and static
// destructors of what was there before it find it down.
void go_down() {
  State up = State::kUp;
  if (!state.compare_exchange_strong(up, State::kDown)) return;
  the_card.load()->streams.close();
}

// The child has no driver, and the parent's sign of life is the parent's alone.
void forked() {
  if (state.load() == State::kNew) return;
  state.store(State::kForked);
  if (Card* card = the_card.load()) card->accounts.forget_after_fork();
}

__attribute__((constructor)) void watch_forks() {
  ::pthread_atfork(nullptr, nullptr, forked);
}

CUresult refused(const std::string& why) {
  complain("cuInit: " + why);
  return CUDA_ERROR_SYSTEM_NOT_READY;
}

CUresult build_card() {
  Config config;
  std::string error;
  if (!read_config(&config, &error)) return refused(error);
  Store store;
  if (!store.open(config.directory, &error)) return refused(error);
  LedgerFile* ledger = open_ledger(store, config, &error);
  if (ledger == nullptr) return refused(error);
  store.ledger.reset();  // the mapping is enough
  if (ledger->header.devices == 0) return CUDA_ERROR_NO_DEVICE;
  // Known before it attaches: a fork in between then closes the child's copy.
  Card* card = the_card.load();
  if (card == nullptr) the_card.store(card = new Card(std::move(store), ledger));
  return card->accounts.attach(config.process, &error) ? CUDA_SUCCESS : refused(error);
}

}  // namespace

CUresult start_card() {
  static Mutex starting;
  Card* card = nullptr;
  // A forked child does not come to the lock, which a thread of its parent may have held.
  if (const CUresult code = card_if_up(&card);
      code != CUDA_ERROR_NOT_INITIALIZED || state.load() == State::kForked) {
    return code;
  }
  const MutexLock lock(starting);
  State expected = State::kNew;
  if (!state.compare_exchange_strong(expected, State::kStarting)) return card_if_up(&card);
  const CUresult code = build_card();
  if (code == CUDA_SUCCESS) std::atexit(go_down);
  state.store(code == CUDA_SUCCESS ? State::kUp : State::kNew);
  return code;
}

CUresult card_if_up(Card** card) {
  switch (state.load(std::memory_order_acquire)) {
    case State::kUp:
      *card = the_card.load();
      return CUDA_SUCCESS;
    case State::kDown:
      return CUDA_ERROR_DEINITIALIZED;
    default:
      return CUDA_ERROR_NOT_INITIALIZED;
  }
}

bool card_went_down() {
  return state.load() == State::kDown;
}

}  // namespace kv::card
