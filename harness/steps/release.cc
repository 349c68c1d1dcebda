// release: lets go what an order holds.
#include <algorithm>

#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

struct ReleaseStep {
  std::string as;

  std::string text() const { return "release " + as; }

  void check(Flow& flow) const {
    const auto known = flow.holds.find(as);
    if (known == flow.holds.end()) {
      flow.refuse("release", fmt::format("nothing is held as \"{}\", expected a hold by that name "
                                         "before{}",
                                         as, near_key(as, flow.holds)));
    } else if (!known->second.active) {
      flow.refuse("release",
                  fmt::format("\"{}\" was released in line {} already, expected one such step", as,
                              known->second.line));
    } else {
      known->second = {false, flow.line()};
    }
  }

  // A release ends its order. Before anybody has come to the point it would leave nothing of it, so
  // it waits until the order has acted.
  Outcome carry_out(Executor& executor) const {
    Board& board = executor.board();
    std::vector<std::uint32_t> all, awaited;
    std::string process;
    for (const Given& given : executor.given()) {
      if (given.as != as || given.of_proof) continue;
      all.push_back(given.id);
      if (!given.may_miss) awaited.push_back(given.id);
      process = given.at.process;
    }
    Outcome outcome = executor.wait_for(
        [&] {
          return std::all_of(awaited.begin(), awaited.end(),
                             [&board](std::uint32_t id) { return board.state(id).acted > 0; });
        },
        [&] { return executor.nobody_left(process); });
    for (const std::uint32_t id : all) board.release(id);
    return outcome;
  }
};

}  // namespace

Deeds read_release(StepReader& reader) {
  return {{ReleaseStep{reader.name("release")}}};
}

}  // namespace kv::drill
