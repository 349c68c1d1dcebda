// Reads the steps of a drill: each table by itself (is it a step, are its words known, do its
// values fit), without looking at what comes before it. That is flow.h. Which steps there are, the
// language says.
//
// Threads, ownership: values; a Draft points into the tree that it was read from.
#ifndef HARNESS_SCENARIO_STEP_READER_H_
#define HARNESS_SCENARIO_STEP_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/language.h"
#include "harness/scenario/scenario.h"
#include "harness/scenario/scenario_fields.h"
#include "harness/scenario/toml_document.h"

namespace kv::drill {

// What steps may refer to.
struct World {
  const Engine& engine;
  const Language& language;
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
  std::vector<Draft> body;  // of a step that holds others

  // Of the value of `key`, or of the whole step.
  Place place(std::string_view key) const;
};

// All of them, also those with faults. A request gives two.
std::vector<Draft> read_steps(const Node& list, const World& world, Faults& faults);

// The finished steps, with the bodies in their places.
std::vector<Step> finished(const std::vector<Draft>& drafts);

// How an address may be used.
enum class Use {
  kWatch,  // waited for, counted, ordered: any name
  kAct,    // held, crashed, frozen, made to run something: no notes
  kFail,   // faults
  kSkip,   // steps
};
// Why the engine's name cannot be used so, with what was expected; empty: it can.
std::string why_not_site(const Engine& engine, const std::string& site, Use use);

// One deed of a step; `text` only where the deed cannot know it.
struct ReadDeed {
  Deed deed;
  std::string text = {};
  std::vector<Draft> body = {};
  std::uint64_t rounds = 1;
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
  // A number from 0 on.
  std::optional<std::uint64_t> amount(const std::string& key);
  // A process's exit code.
  std::optional<int> exit_code(const std::string& key);
  // A signal by its name, which must be there.
  std::optional<int> signal(const std::string& key);
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

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_STEP_READER_H_
