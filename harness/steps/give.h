// What the orders have in common: hold, fail, pretend, skip, crash, freeze, run. Each is given to
// the engine at once and acts when a thread comes to its moment.
//
// Threads, ownership: values.
#ifndef HARNESS_STEPS_GIVE_H_
#define HARNESS_STEPS_GIVE_H_

#include <cstdint>
#include <string>

#include "harness/steps/parts.h"

namespace kv::drill {

inline constexpr std::uint64_t kAlways = 0;  // how often

struct GiveStep {
  Given order;
  const char* word = "hold";

  std::string text() const;
  void foretell(Ahead& ahead) const;
  void check(Flow& flow) const;
  Outcome carry_out(Executor& executor) const;
};

// The order `word` at the moment that `key` names.
GiveStep order_at(StepReader& reader, const char* word, Action action, Use use,
                  const std::string& key);
// `times`: a number from 1 on, or "always".
std::uint64_t read_times(StepReader& reader, std::uint64_t otherwise);
// `from`: the first of a thread's hits that it acts on, another word for `hit`.
void read_from(StepReader& reader, GiveStep& step);
// What all orders share, after what is their own.
Deeds finished_order(StepReader& reader, GiveStep step);

}  // namespace kv::drill

#endif  // HARNESS_STEPS_GIVE_H_
