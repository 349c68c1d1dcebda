// The commands that build, share, read and drop caches; see kCommands for what each takes.
//
// Threads, ownership: as call.h says.
#ifndef FAKES_WORKER_CACHE_COMMANDS_H_
#define FAKES_WORKER_CACHE_COMMANDS_H_

#include "fakes/worker/call.h"

namespace kv::worker {

// A producer's.
void build_cache(const Call& call);
void stamp_cache(const Call& call);
void drop_cache(const Call& call);
void drop_caches(const Call& call);
void cache_leases(const Call& call);
// A reader's.
void open_cache(const Call& call);
void verify_cache(const Call& call);
void release_cache(const Call& call);
// A scheduler's.
void broadcast(const Call& call);

}  // namespace kv::worker

#endif  // FAKES_WORKER_CACHE_COMMANDS_H_
