// Between steps.cc and the files that read one family of steps each.
//
// Threads, ownership: as steps.h.
#ifndef HARNESS_STEPS_STEPS_READER_H_
#define HARNESS_STEPS_STEPS_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "harness/steps/steps.h"

namespace kv::drill {

// One deed of a step; `text` only where describe() cannot know it.
struct ReadDeed {
  Deed deed;
  std::string text = {};
};

class StepReader {
 public:
  StepReader(Fields& step_fields, const World& step_world, Faults& step_faults)
      : fields(step_fields), world(step_world), faults(step_faults) {}

  // The name of a declared process; empty: wrong, reported, and the step is lost.
  std::string process(const std::string& key);
  // A name that the drill gives (of a client, a call, a hold): any text but an empty one.
  std::string name(const std::string& key);
  // The process named by `in`; without it the only one there is.
  std::string in();
  // The moment named by `key`, with the step's in and thread, and hit and key where `exact`.
  Address site(const std::string& key, Use use, bool exact = true);
  // A name of the engine's commands.
  std::string command(const std::string& key);
  // The table `args`; an empty one when absent.
  Value arguments();
  // errno values that are no failure.
  std::vector<int> allowed_errors();
  // A path with templates; `what` for messages.
  std::string path(const Node& value, const std::string& what);

  Fields& fields;
  const World& world;
  Faults& faults;
  bool lost = false;

 private:
  bool known_process(const Node& value, const std::string& name);
};

using Deeds = std::vector<ReadDeed>;

// steps_process.cc
Deeds read_start(StepReader& reader);
Deeds read_signal(StepReader& reader);
Deeds read_exit(StepReader& reader);
Deeds read_ended(StepReader& reader);
Deeds read_call(StepReader& reader);
Deeds read_returns(StepReader& reader);
Deeds read_pending(StepReader& reader);
// steps_client.cc
Deeds read_client(StepReader& reader);
// steps_moment.cc
Deeds read_wait(StepReader& reader);
Deeds read_hold(StepReader& reader);
Deeds read_release(StepReader& reader);
Deeds read_fail(StepReader& reader);
Deeds read_skip(StepReader& reader);
Deeds read_crash(StepReader& reader);
Deeds read_freeze(StepReader& reader);
Deeds read_run(StepReader& reader);
Deeds read_advance(StepReader& reader);
// steps_assert.cc
Deeds read_order(StepReader& reader);
Deeds read_count(StepReader& reader);
Deeds read_logged(StepReader& reader);
Deeds read_file(StepReader& reader);
Deeds read_place(StepReader& reader);
Deeds read_card(StepReader& reader);

}  // namespace kv::drill

#endif  // HARNESS_STEPS_STEPS_READER_H_
