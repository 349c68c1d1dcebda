// The worker protocol's requests, carried out on an allocator; what each command takes and answers
// is the table of the protocol, which deployed engines speak.
//
// Threads: any; the allocator orders the calls.
// Ownership: borrows the allocator.
#ifndef KVCORE_SERVICE_H_
#define KVCORE_SERVICE_H_

#include <string_view>

#include "kvcore/kv_allocator.h"
#include "kvcore/message.h"
#include "kvcore/status.h"

namespace kv {

// {"status": "error", "message", "error_type"} and, if `phase` is given, "phase". The error_type is
// "map_quarantined" (kQuarantined: pages are lost until the end), "state_consistency" (the request
// does not fit the worker's state: unknown group, not mapped, another transaction) or
// "operation_failed" (everything else).
Message error_reply(const Status& status, std::string_view phase = {});

// Answers one request. Never fails: what goes wrong is the reply.
Message serve_request(KvAllocator& allocator, const Message& request);

}  // namespace kv

#endif  // KVCORE_SERVICE_H_
