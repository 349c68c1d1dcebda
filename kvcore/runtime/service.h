// The worker protocol's requests, carried out on an allocator; what each command takes and answers
// is the table of the protocol, which deployed engines speak.
//
// Threads: any; the allocator orders the calls.
// Ownership: borrows the allocator.
#ifndef KVCORE_RUNTIME_SERVICE_H_
#define KVCORE_RUNTIME_SERVICE_H_

#include "kvcore/base/status.h"
#include "kvcore/memory/kv_allocator.h"
#include "kvcore/wire/message.h"

namespace kv {

// Answers one request. Never fails: what goes wrong is the reply.
Message serve_request(KvAllocator& allocator, const Message& request);

}  // namespace kv

#endif  // KVCORE_RUNTIME_SERVICE_H_
