// The listeners of a process, by rank and stage: started, replaced, stopped one by one or all at
// once. Its owner is the Runtime; there is no other.
//
// An entry leaves the registry only when its listener has said done. Not drained or failed, it
// stays, so that a later stop goes on where this one ended.
//
// Threads: all members from any thread, also from a listener's handler.
// Ownership: owns the listeners.
#ifndef KVCORE_RUNTIME_REGISTRY_H_
#define KVCORE_RUNTIME_REGISTRY_H_

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvcore/base/clock.h"
#include "kvcore/base/status.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/listener/listener.h"

namespace kv {

class ListenerRegistry {
 public:
  struct Key {
    std::int64_t rank = 0;
    std::int64_t stage = 0;
    auto operator<=>(const Key&) const = default;
  };
  using Make = std::function<Result<std::unique_ptr<Listener>>()>;

  // The clock must outlive it.
  explicit ListenerRegistry(Clock& clock) : clock_(clock) {}

  // Registers what `make` makes. One that is registered is stopped first; kFailedPrecondition, and
  // the old one stays, if that does not end with kDone within `limit`; also while another thread
  // starts this one, and between close() and reopen().
  Status start(Key key, Nanos limit, const Make& make) KV_EXCLUDES(mu_);

  // Stops one; kDone when there is none.
  StopResult stop(Key key, Nanos limit, Status* why) KV_EXCLUDES(mu_);
  // Cuts all of them at once, then waits for each until one common deadline. kNotDrained if one was
  // not drained, else kFailed if one failed; `why` gets the first failure.
  StopResult stop_all(Nanos limit, Status* why) KV_EXCLUDES(mu_);

  // From close() on nothing is started until as many reopen() came.
  void close() KV_EXCLUDES(mu_);
  void reopen() KV_EXCLUDES(mu_);

  // The registered listener on whose own thread the caller is; null elsewhere.
  std::shared_ptr<Listener> own() KV_EXCLUDES(mu_);
  // Empty when none is registered.
  std::string socket_path(Key key) KV_EXCLUDES(mu_);

 private:
  struct Entry {
    std::shared_ptr<Listener> listener;
    bool starting = false;  // a start() is at work on it
  };

  Status replace(Key key, const std::shared_ptr<Listener>& old, Nanos limit, const Make& make)
      KV_EXCLUDES(mu_);
  void started(Key key) KV_EXCLUDES(mu_);
  StopResult finish(Key key, const std::shared_ptr<Listener>& listener, Time deadline, Status* why)
      KV_EXCLUDES(mu_);
  void forget(Key key, const std::shared_ptr<Listener>& listener, bool stopped) KV_EXCLUDES(mu_);
  std::vector<std::pair<Key, std::shared_ptr<Listener>>> registered() KV_REQUIRES(mu_);

  Clock& clock_;
  Mutex mu_;
  std::condition_variable changed_;
  int closed_ KV_GUARDED_BY(mu_) = 0;
  std::map<Key, Entry> entries_ KV_GUARDED_BY(mu_);
};

}  // namespace kv

#endif  // KVCORE_RUNTIME_REGISTRY_H_
