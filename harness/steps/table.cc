#include "harness/steps/table.h"

#include "harness/scenario/step_reader.h"
#include "harness/verdict/checks.h"

// One line a step, in the order of the page: its word, what it does, and the steps in which the
// word is a key like any other. Its file is WORD.cc and defines read_WORD().
// clang-format off
#define KVDRILL_STEPS(STEP)                                                                      \
  STEP(start, "begins a process and waits until it is ready, or until it has failed")             \
  STEP(client, "a raw connection, played by the harness")                                         \
  STEP(wait, "for a moment; at once when it is in the record", "exit")                            \
  STEP(hold, "lets a thread stand at a moment, until its release")                                \
  STEP(release, "lets go what a hold or a freeze holds")                                          \
  STEP(fail, "lets a call of the engine fail with a code")                                        \
  STEP(pretend, "lets a call of the engine report success without being made")                    \
  STEP(skip, "leaves a protection out")                                                           \
  STEP(crash, "lets the process die at a moment")                                                 \
  STEP(freeze, "stops the whole process at a moment, until its release")                          \
  STEP(run, "runs a command of the engine at a moment, on that very thread")                      \
  STEP(call, "starts a command of the engine on a thread of its own, and goes on")                \
  STEP(returns, "waits for the answer of a call and compares it")                                 \
  STEP(one_of, "of several calls exactly one wins")                                               \
  STEP(pending, "waits until nobody can move; the call has not returned then")                    \
  STEP(exit, "tells a process how to end, and waits for it")                                      \
  STEP(ended, "waits for the end of a process that nobody told to end")                           \
  STEP(advance, "moves the manual clock")                                                         \
  STEP(order, "the first occurrences of moments came in this order")                              \
  STEP(count, "how often a moment is in the record")                                              \
  STEP(logged, "waits for a line of the log that holds the text")                                 \
  STEP(stderr, "what a process wrote to its standard error")                                      \
  STEP(file, "looks at a path")                                                                   \
  STEP(place, "makes a file or a dead socket")                                                    \
  STEP(card, "what the card's ledger says that a process holds")                                  \
  STEP(repeat, "does the steps in it so often")                                                   \
  STEP(signal, "sends a signal to a process", "crash", "ended")
// clang-format on

namespace kv::drill {

#define DECLARED(word, ...) Deeds read_##word(StepReader& reader);
KVDRILL_STEPS(DECLARED)
#undef DECLARED

const Language& language() {
#define LISTED(word, purpose, ...) {#word, purpose, read_##word, {__VA_ARGS__}},
  static const Language kLanguage{{KVDRILL_STEPS(LISTED)}, default_check_names()};
#undef LISTED
  return kLanguage;
}

}  // namespace kv::drill
