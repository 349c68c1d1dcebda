// Reads the steps of a drill: each table by itself (is it a step, are its words known, do its
// values fit), without looking at what comes before it. That is steps_flow.h.
//
// Threads, ownership: values; a Draft points into the tree that it was read from.
#ifndef HARNESS_STEPS_STEPS_H_
#define HARNESS_STEPS_STEPS_H_

#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/scenario.h"
#include "harness/scenario/scenario_fields.h"
#include "harness/scenario/toml_document.h"

namespace kv::drill {

// What steps may refer to.
struct World {
  const Engine& engine;
  const std::vector<ProcessSpec>& processes;
  bool manual_clock = true;
  std::string file;

  std::vector<std::string> process_names() const;
};

// A step as read, with where it stands.
struct Draft {
  Step step;
  const Node* source = nullptr;
  // Something in it was refused: its effect is believed, but it is not checked further.
  bool broken = false;
  // It is not known what it does: nothing behind it can be checked against it.
  bool lost = false;
  std::vector<Draft> body;  // of a repeat

  // Of the value of `key`, or of the whole step.
  Place place(std::string_view key) const;
};

// All of them, also those with faults. A request gives two.
std::vector<Draft> read_steps(const Node& list, const World& world, Faults& faults);

// The finished steps, with the bodies of repeats in their places.
std::vector<Step> finished(const std::vector<Draft>& drafts);

// A deed in one short line: "wait listener.read.body in worker".
std::string describe(const Deed& deed);

// The words that begin a step.
const std::vector<std::string>& step_kinds();

// How an address may be used.
enum class Use {
  kWatch,  // waited for, counted, ordered: any name
  kAct,    // held, crashed, frozen, made to run something: no notes
  kFail,   // faults
  kSkip,   // steps
};
// Why the engine's name cannot be used so, with what was expected; empty: it can.
std::string why_not_site(const Engine& engine, const std::string& site, Use use);

}  // namespace kv::drill

#endif  // HARNESS_STEPS_STEPS_H_
