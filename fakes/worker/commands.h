// What a drill may call in a worker.
//
// Threads: the commands run on threads of their own, several at once.
// Ownership: borrow the Worker, which lives as long as the process.
#ifndef FAKES_WORKER_COMMANDS_H_
#define FAKES_WORKER_COMMANDS_H_

#include <sys/types.h>

#include <atomic>

#include "fakes/worker/options.h"
#include "harness/board/kvdrill.h"
#include "kvcore/base/clock.h"
#include "kvcore/runtime/runtime.h"

namespace kv::worker {

class Caches;
class KvCaches;

struct Worker {
  Options options;
  // These are there before the runtime is.
  pid_t pid = 0;
  Clock* clock = nullptr;
  Caches* caches = nullptr;
  KvCaches* blocks = nullptr;
  std::atomic<Runtime*> runtime{nullptr};  // null until it is up; the commands say so
};

// Ended by a null name; their engine pointer is a Worker.
extern const kvdrill_command kCommands[];

// Tells the drill where the socket of this rank and stage is. Facts: "socket" and "socket_dir" for
// the worker's own, "socket_<rank>_<stage>" for others.
void announce_socket(const Worker& worker, std::int64_t rank, std::int64_t stage);

}  // namespace kv::worker

#endif  // FAKES_WORKER_COMMANDS_H_
