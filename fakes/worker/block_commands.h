// The commands about blocks, pages, limits, records and budgets; see kCommands for what each takes.
//
// Threads, ownership: as call.h says. A call that is parked in the driver or waits for pages parks
// its own thread only; a cache that is closed meanwhile lives until the last of them is out.
#ifndef FAKES_WORKER_BLOCK_COMMANDS_H_
#define FAKES_WORKER_BLOCK_COMMANDS_H_

#include "fakes/worker/call.h"

namespace kv::worker {

void make_cache(const Call& call);
void close_cache(const Call& call);

// Blocks.
void alloc(const Call& call);
void free_blocks(const Call& call);
void reserve(const Call& call);
void free_reserved(const Call& call);
void clear(const Call& call);
void occupancy(const Call& call);

// Pages and their limit.
void trim(const Call& call);
void set_limit(const Call& call);
void cache_counts(const Call& call);

// What an outside tool does with a record.
void request_limit(const Call& call);
void read_record(const Call& call);
// What somebody does who means harm, to any file of the segment root.
void cut_segment(const Call& call);
void write_segment(const Call& call);

// The budget of a group's cache.
void budget_bytes(const Call& call);

// A runtime in a process that has one already.
void second_runtime(const Call& call);

}  // namespace kv::worker

#endif  // FAKES_WORKER_BLOCK_COMMANDS_H_
