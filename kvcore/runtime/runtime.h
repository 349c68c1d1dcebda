// One engine's life in a process: driver, allocator and listeners up, and down again in the only
// safe order. The registry of the process's listeners (registry.h) lives here and nowhere else.
//
// Down: the engine's own shutdown first (it may throw: logged, and the rest goes on), then all
// listeners are cut at once and drained in parallel under one limit; only then are the caches and
// the driver's context given back. Not drained: nothing is torn down, everything stays usable and
// registered, and a later shutdown() or the exit hook tries again.
//
// The exit hook is registered once the driver is up, so it runs before the driver goes down. If it
// cannot drain it logs "not drained at exit" and skips the teardown. It leaves a forked child alone
// and does not call the engine's own shutdown, whose objects may be gone by then. Runtime objects
// are never destroyed: no static destructor touches driver, socket or registry.
//
// Threads: all members from any thread. Ownership: owns driver table, allocator, listeners; whoever
// calls init() borrows the Runtime, for as long as the process lives.
#ifndef KVCORE_RUNTIME_RUNTIME_H_
#define KVCORE_RUNTIME_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/status.h"
#include "kvcore/driver/vmm.h"
#include "kvcore/listener/listener.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {

struct RuntimeConfig {
  std::string driver_path = "libcuda.so.1";  // the real driver, or the fake card
  int device = 0;
  std::string ipc_name;  // names sockets; letters, digits, '_', '-'; at most 64
  // Where kvcached-tp-<ipc>-<h> is made: absolute, exists, and stays as it is. It may be a link.
  std::string socket_root = "/tmp";
  std::int64_t rank = 0;
  std::int64_t stage = 0;  // pipeline stage; > 0 adds a directory pp<stage>
  // Of a stop; and how long a start waits for the starts and stops of others in its directory.
  Nanos drain_limit = std::chrono::seconds(5);
  std::uint32_t max_body = 16u << 20;  // bytes of a request

  // The first thing that is wrong with it: which field, its value, what was expected.
  Status validate() const;
};

class Runtime {
 public:
  // Brings up driver, context and allocator; registers the exit hook. On failure nothing is left.
  // kFailedPrecondition: a Runtime of this process has not been shut down. Clock and log are used
  // by the exit hook: they live as long as the process.
  static Result<Runtime*> init(RuntimeConfig config, Clock& clock, LogSink log);
  // The same on a driver that is up already (doubles, other backends). `close` takes it down, after
  // everything on it has been given back.
  static Result<Runtime*> init(RuntimeConfig config, std::unique_ptr<Vmm> vmm,
                               std::function<Status()> close, Clock& clock, LogSink log);

  KvAllocator& allocator();
  Vmm& vmm();

  // Starts the worker's listener; requests are served by the allocator. Where one is registered for
  // this rank and stage it is stopped first; kFailedPrecondition if that cannot finish, and the old
  // one stays registered. Without arguments: the configuration's rank and stage.
  Status start_listener();
  Status start_listener(std::int64_t rank, std::int64_t stage);
  // Stops that one alone, within the drain limit; kDone when there is none. It stays registered
  // unless the result is kDone.
  StopResult stop_listener(std::int64_t rank, std::int64_t stage, Status* why = nullptr);
  // Socket of the registered listener; empty without one.
  std::string socket_path();

  // Called first by shutdown(), once; at most one. Empty: none.
  void set_engine_shutdown(std::function<void()> shutdown);
  // Idempotent. kDone: all given back. kNotDrained, kFailed: as the listener's; call again. From a
  // listener's handler: kNotDrained at once, nothing changed. Of several at once each waits for the
  // others' part, at most the drain limit.
  StopResult shutdown(Status* why = nullptr);
  bool initialised();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  explicit Runtime(std::unique_ptr<Impl> impl);
  ~Runtime();  // never called
};

}  // namespace kv

#endif  // KVCORE_RUNTIME_RUNTIME_H_
