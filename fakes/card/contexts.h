// Contexts: one primary context a device, retained and released by count, further ones by
// cuCtxCreate, and which one is current on a thread.
//
// Threads: any; a context object is never freed, because any thread may have it current.
// Ownership: this table's.
#ifndef FAKES_CARD_CONTEXTS_H_
#define FAKES_CARD_CONTEXTS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "fakes/card/config.h"
#include "fakes/card/cuda_abi.h"
#include "kvcore/base/thread_annotations.h"

namespace kv::card {

struct Context {
  Context(int its_device, bool is_primary) : device(its_device), primary(is_primary) {}
  const int device;
  const bool primary;
  // What calls in it answer: 0, or 700 after work died, or 709 once it is destroyed.
  std::atomic<unsigned> condition{CUDA_SUCCESS};

  CUresult state() const { return static_cast<CUresult>(condition.load()); }
};

class Contexts {
 public:
  // Retains the device's primary context, making it if there is none alive.
  CUcontext retain(int device);
  // True when a count was there to take; `ended`: the context to destroy, if this was the last.
  bool release(int device, CUcontext* ended);
  // Forgets the primary context and all counts of it; null: there was none.
  CUcontext reset(int device, std::uint64_t* counts);
  bool is_active(int device);

  CUcontext create(int device);
  // False: not a context that was ever made here.
  bool knows(CUcontext context);

  // Of the calling thread. No context: null.
  static CUcontext current();
  static void set_current(CUcontext context);
  // False: the stack is full, or empty.
  static bool push(CUcontext context);
  static bool pop(CUcontext* context);

 private:
  struct Primary {
    CUcontext context = nullptr;
    std::uint64_t retained = 0;
  };
  Mutex mutex_;
  std::array<Primary, kMaxDevices> primary_ KV_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Context>> all_ KV_GUARDED_BY(mutex_);
};

}  // namespace kv::card

#endif  // FAKES_CARD_CONTEXTS_H_
