// Judges proofs: with a protection left out, exactly the named checks must fail. And finds the
// protections that no proof speaks for.
//
// Threads, ownership: pure functions of values.
#ifndef HARNESS_VERDICT_PROOF_H_
#define HARNESS_VERDICT_PROOF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

struct ProofResult {
  std::string scenario;  // full name of the drill
  std::string file;
  std::vector<std::string> skip;   // the steps left out
  std::vector<std::string> fails;  // the checks that must fail, exactly
  Verdict verdict = Verdict::kPass;
  std::string why;  // empty for a pass
  Position position;
  std::int64_t ms = 0;
  std::string folder, repeat;
  // Where the proof was repeated this is the worst of so many runs, and so many did not fail as it
  // says.
  std::uint64_t runs = 1, missed = 0;
};

// `run` is the drill's result with the proof's steps left out. Void when a step was never reached.
ProofResult judge(const Drill& drill, const Proof& proof, const DrillResult& run);

// The steps of `engine` that no proof names which passed or was skipped, sorted.
std::vector<std::string> surviving(const Engine& engine, const std::vector<ProofResult>& proofs);

}  // namespace kv::drill

#endif  // HARNESS_VERDICT_PROOF_H_
