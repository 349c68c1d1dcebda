// Where kvcore's points meet the engine contract. The two are declared apart, on purpose: kvcore
// knows no harness. That they are the same bytes is checked here at compile time.
//
// Threads, ownership: as kvdrill.h says.
#ifndef FAKES_WORKER_GLUE_H_
#define FAKES_WORKER_GLUE_H_

#include "harness/board/kvdrill.h"
#include "kvcore/hook.h"

namespace kv::worker {

// All named moments of this program, as the contract's list.
kvdrill_site* contract_sites();
// Lets kvcore's points reach the drill's functions; null (no drill): they stay unarmed.
void install(const kvdrill_hooks* hooks);

}  // namespace kv::worker

#endif  // FAKES_WORKER_GLUE_H_
