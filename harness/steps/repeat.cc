// repeat: does the steps in it so often.
#include <cstdint>
#include <utility>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

constexpr std::int64_t kMostRounds = 1'000'000;

// The steps themselves are the body of the Step.
struct RepeatStep {
  std::uint64_t times = 1;

  std::string text() const { return fmt::format("repeat {} times", times); }
  void check(Flow&) const {}
  Outcome carry_out(Executor&) const { return {}; }
};

}  // namespace

Deeds read_repeat(StepReader& reader) {
  ReadDeed made{RepeatStep{}};
  made.rounds =
      static_cast<std::uint64_t>(reader.fields.integer("repeat", 1, kMostRounds).value_or(1));
  made.deed = RepeatStep{made.rounds};
  if (reader.fields.require("steps", "a list of steps") != nullptr) {
    if (const Node* list = reader.fields.list("steps")) {
      made.body = read_steps(*list, reader.world, reader.faults);
      if (made.body.empty()) {
        reader.faults.add(*list, "steps is empty, expected at least one step");
      }
    }
  }
  return {std::move(made)};
}

}  // namespace kv::drill
