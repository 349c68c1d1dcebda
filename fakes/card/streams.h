// Streams, events and the work in them: what is queued behind what, which work is in flight over
// which addresses, and what becomes of it when a page is unmapped under it: the work ends with 700
// and its context is poisoned (recorded), while calls on pages go on.
//
// Work runs on the calling thread where nothing is in front of it, and otherwise on a thread of the
// card's; there are as many as streams ever needed one at the same time, and none before.
//
// Threads: any; one mutex, never held while work runs. Ownership: streams and events are this
// table's; what is queued keeps its stream alive.
#ifndef FAKES_CARD_STREAMS_H_
#define FAKES_CARD_STREAMS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fakes/card/contexts.h"
#include "fakes/card/cuda_abi.h"
#include "kvcore/base/thread_annotations.h"

namespace kv::card {

struct Work;
// Null and 1 name the default stream of a context, with which its blocking streams keep in order.
struct Stream {
  CUcontext context = nullptr;
  bool is_default = false;
  bool blocking = true;  // keeps in order with the default stream
  bool destroyed = false;
  bool is_served = false;                      // by a thread of the card's
  std::uint64_t submitted = 0, completed = 0;  // numbers of the last work
  std::deque<std::shared_ptr<Work>> queue;     // the front may be running
};
using StreamPtr = std::shared_ptr<Stream>;

// All work of a stream up to a number.
struct Ticket {
  StreamPtr stream;
  std::uint64_t number = 0;
};
struct Event {
  Ticket ticket;  // no stream: never recorded
};

struct DeviceRange {
  CUdeviceptr start = 0;
  std::uint64_t size = 0;
};

struct Work {
  // A hold has no body: it ends when it is released.
  enum class Kind { kCopy, kHostFunction, kHold };
  Kind kind = Kind::kCopy;
  // Runs without any lock. A result other than 0 is the caller's if it waits; 700, or any if nobody
  // waits, poisons the context.
  std::function<CUresult()> body;
  std::vector<DeviceRange> uses;
  std::vector<Ticket> after;

  std::uint64_t number = 0;
  bool by_caller = false, running = false, released = false;
};

class Streams {
 public:
  CUresult create(CUcontext context, bool blocking, CUstream* stream);
  CUresult destroy(CUstream stream);
  // Null: no such stream.
  StreamPtr find(CUstream stream, CUcontext current);

  // Queues work; `wait`: returns when it has run, with its result.
  CUresult submit(const StreamPtr& stream, const std::shared_ptr<Work>& work, bool wait);
  // 0, or what the stream's context answers; NOT_READY from a query while there is work.
  CUresult synchronize(const StreamPtr& stream);
  CUresult query(const StreamPtr& stream);
  CUresult synchronize(CUcontext context);

  CUevent create_event();
  CUresult destroy_event(CUevent event);
  CUresult record(CUevent event, const StreamPtr& stream);
  CUresult query(CUevent event);
  CUresult synchronize(CUevent event);
  CUresult wait_for(CUevent event, const StreamPtr& stream);

  // Nothing is mapped there any more: work in flight over it dies.
  void unmapped(CUdeviceptr address, std::uint64_t size);
  // The context answers `condition` from now on; its work does not run any more.
  void end(CUcontext context, CUresult condition);
  // No work starts any more: the process is going down.
  void close();

  // kvcard.h.
  CUresult await_hold(const StreamPtr& stream);
  void release_holds(const StreamPtr& stream);

 private:
  CUresult answer_of(const Stream& stream) KV_REQUIRES(mutex_);
  bool is_done(const Ticket& ticket) KV_REQUIRES(mutex_);
  bool all_done(const std::vector<Ticket>& tickets) KV_REQUIRES(mutex_);
  void keep_in_order(const Stream& stream, Work* work) KV_REQUIRES(mutex_);
  CUresult run_by_caller(MutexLock& lock, Stream& stream, const std::shared_ptr<Work>& work)
      KV_REQUIRES(mutex_);
  CUresult run(MutexLock& lock, Stream& stream, const std::shared_ptr<Work>& work)
      KV_REQUIRES(mutex_);
  CUresult run_body(MutexLock& lock, Stream& stream, Work& work) KV_REQUIRES(mutex_);
  CUresult start_serving(const StreamPtr& stream) KV_REQUIRES(mutex_);
  CUresult start_thread() KV_REQUIRES(mutex_);
  void serve();
  void poison(CUcontext context, CUresult condition) KV_REQUIRES(mutex_);
  CUresult await(MutexLock& lock, const Ticket& ticket) KV_REQUIRES(mutex_);
  void forget_if_idle(const StreamPtr& stream) KV_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable changed_;
  bool closed_ KV_GUARDED_BY(mutex_) = false;
  std::size_t idle_threads_ KV_GUARDED_BY(mutex_) = 0;
  std::deque<StreamPtr> to_serve_ KV_GUARDED_BY(mutex_);
  std::vector<StreamPtr> all_ KV_GUARDED_BY(mutex_);  // default ones and destroyed busy ones too
  std::unordered_map<CUevent, std::unique_ptr<Event>> events_ KV_GUARDED_BY(mutex_);
};

}  // namespace kv::card

#endif  // FAKES_CARD_STREAMS_H_
