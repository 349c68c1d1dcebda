// The words that the language is made of, handed to the loader by whoever knows them all
// (harness/steps/table.h): the loader itself knows no step and no built-in check.
//
// Threads, ownership: values.
#ifndef HARNESS_SCENARIO_LANGUAGE_H_
#define HARNESS_SCENARIO_LANGUAGE_H_

#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

class StepReader;
struct ReadDeed;
// What one table says: one deed, for a shorthand several; none when it could not be understood.
using Deeds = std::vector<ReadDeed>;

struct StepKind {
  std::string_view word;     // its first key
  std::string_view purpose;  // as in the table of scenarios/README.md
  Deeds (*read)(StepReader& reader);
  // The steps in which the word is a key like any other.
  std::vector<std::string_view> key_of = {};
};

struct Language {
  std::vector<StepKind> steps;
  std::vector<std::string> checks;  // that every drill has

  std::vector<std::string> words() const {
    std::vector<std::string> all;
    for (const StepKind& kind : steps) all.emplace_back(kind.word);
    return all;
  }
};

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_LANGUAGE_H_
