// The parts of a scenario file above its steps: variants (base, arms, matrix), the fields of a
// drill, its processes, its proofs. load_scenario() in loader.cc puts them together.
//
// Threads, ownership: values; a Variant points into the tree of the file.
#ifndef HARNESS_SCENARIO_LOADER_DRILL_H_
#define HARNESS_SCENARIO_LOADER_DRILL_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/scenario/flow.h"
#include "harness/scenario/language.h"
#include "harness/scenario/scenario.h"
#include "harness/scenario/scenario_fields.h"
#include "harness/scenario/scenario_params.h"
#include "harness/scenario/toml_document.h"

namespace kv::drill {

// One run to be made of a file, before its parameters are filled in.
struct Variant {
  std::string arm;  // empty: the base
  Place place;
  Parameters values;
  std::map<std::string, Place> set;  // what the arm itself sets
  Node drill;                        // the keys of [drill], with the arm's in their places
  Node processes;                    // likewise
};

// Reads params, [drill], [processes], [[arm]] and [matrix]; the base comes first.
std::vector<Variant> read_variants(Fields& root, Faults& faults);

struct LoadedDrill {
  Drill drill;
  std::set<std::string> used;     // parameters
  std::set<std::string> started;  // processes that a step starts
  std::vector<std::string> ids;   // of its steps
  Parameters values;
};
// What a file is read with.
struct Source {
  const Engine& engine;
  const Language& language;
  const std::string& file;
};
LoadedDrill read_drill(const Variant& variant, const Source& source, Faults& faults);

// Reads [[prove]] and gives each proof to its drill; adds the parameters it used.
void read_proofs(Fields& root, const Source& source, std::vector<LoadedDrill>& drills,
                 Faults& faults);

// Reads not_under: the sanitizers under which something is skipped.
std::vector<std::string> read_not_under(Fields& fields, Faults& faults);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_LOADER_DRILL_H_
