// Steps about moments: waiting for them, giving orders, and what the record says of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/drill/executor.h"

namespace kv::drill {
namespace {

using How = Outcome::How;

bool has_logged(const Moments& moments, const LoggedStep& step) {
  const auto& events = moments.events();
  const auto& processes = moments.processes();
  return std::any_of(events.begin(), events.end(), [&](const Event& event) {
    return event.kind == EventKind::kLog && !event.torn &&
           event.text.find(step.text) != std::string_view::npos &&
           (step.process.empty() ||
            (event.process < processes.size() && processes[event.process].name == step.process));
  });
}

}  // namespace

Outcome Executor::carry_out(const WaitStep& step) {
  situation_.take_in();
  const std::uint64_t before = step.again ? situation_.moments().count(step.at) : 0;
  return wait_for([this, &step, before] { return situation_.moments().count(step.at) > before; },
                  [this, &step] { return nobody_left(step.at.process); });
}

Outcome Executor::carry_out(const GiveStep& step) {
  give(step, step_->id, step_->position, false);
  return {};
}

// A release ends its order. Before anybody has come to the point it would leave nothing of it, so
// it waits until the order has acted.
Outcome Executor::carry_out(const ReleaseStep& step) {
  std::vector<std::uint32_t> orders;
  std::string process;
  for (const Given& given : given_) {
    if (given.step.as != step.as || given.of_proof) continue;
    if (!given.step.may_miss) orders.push_back(given.id);
    process = given.step.at.process;
  }
  Outcome outcome = wait_for(
      [&] {
        return std::all_of(orders.begin(), orders.end(),
                           [this](std::uint32_t id) { return board_.state(id).acted > 0; });
      },
      [&] { return nobody_left(process); });
  for (const Given& given : given_) {
    if (given.step.as == step.as && !given.of_proof) board_.release(given.id);
  }
  return outcome;
}

Outcome Executor::carry_out(const OrderStep& step) {
  situation_.take_in();
  const Event* before = nullptr;
  std::string before_name;
  for (const Address& address : step.addresses) {
    const Event* event = situation_.moments().first(address);
    if (event == nullptr) {
      return {How::kWrong, fmt::format("{} never happened", to_string(address))};
    }
    if (before != nullptr && event->sequence < before->sequence) {
      return {How::kWrong,
              fmt::format("{} (event {}) came before {} (event {})", to_string(address),
                          event->sequence, before_name, before->sequence)};
    }
    before = event;
    before_name = to_string(address);
  }
  return {};
}

Outcome Executor::carry_out(const CountStep& step) {
  situation_.take_in();
  const std::uint64_t number = situation_.moments().count(step.of);
  std::string wanted;
  if (step.is && number != *step.is) wanted = fmt::format("{}", *step.is);
  if (step.at_least && number < *step.at_least) wanted = fmt::format("at least {}", *step.at_least);
  if (step.at_most && number > *step.at_most) wanted = fmt::format("at most {}", *step.at_most);
  if (wanted.empty()) return {};
  return {How::kWrong, fmt::format("{} happened {} time{}, expected {}", to_string(step.of), number,
                                   number == 1 ? "" : "s", wanted)};
}

Outcome Executor::carry_out(const LoggedStep& step) {
  return wait_for([this, &step] { return has_logged(situation_.moments(), step); },
                  [this, &step] { return nobody_left(step.process); });
}

}  // namespace kv::drill
