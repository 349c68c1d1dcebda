// The flow of steps about moments, calls and what is there: see steps_flow.h.
#include <fmt/format.h>

#include <utility>

#include "harness/scenario/names.h"
#include "harness/steps/steps_flow.h"

namespace kv::drill {
namespace {

template <typename Map>
std::string near_key(const std::string& word, const Map& map) {
  std::vector<std::string> words;
  for (const auto& [key, value] : map) words.push_back(key);
  const std::string near = nearest(word, words);
  return near.empty() || near == word ? std::string() : fmt::format(" (nearest: {})", near);
}

}  // namespace

void Flow::on(const WaitStep& step) {
  alive(step.at.process, "wait");
}

void Flow::on(const GiveStep& step) {
  const int line = now_->source->place.line;
  const ProcessState& process = processes_[step.at.process];
  const std::string_view key = step.what == GiveStep::What::kHold    ? "hold"
                               : step.what == GiveStep::What::kFail  ? "fail"
                               : step.what == GiveStep::What::kSkip  ? "skip"
                               : step.what == GiveStep::What::kCrash ? "crash"
                               : step.what == GiveStep::What::kRun   ? "run"
                                                                     : "freeze";
  if (!now_->broken && (process.state == Process::kEnded || process.state == Process::kKilled)) {
    idle_.push_back({step.at.process, now_->place(key), process.line});
  }
  if (step.what == GiveStep::What::kRun) {
    call_made(step.as, now_->source->find("as") != nullptr ? "as" : "run");
    return;
  }
  const bool named = now_->source->find("as") != nullptr;
  const bool holds = step.what == GiveStep::What::kHold || step.what == GiveStep::What::kFreeze;
  const auto known = holds_.find(step.as);
  if ((holds || named) && known != holds_.end() && known->second.active) {
    refuse(named ? "as" : key,
           fmt::format("\"{}\" is the name of an order in line {}, expected another name by as",
                       step.as, known->second.line));
  }
  if (holds) holds_[step.as] = {true, line};
}

void Flow::on(const ReleaseStep& step) {
  const auto known = holds_.find(step.as);
  if (known == holds_.end()) {
    refuse("release", fmt::format("nothing is held as \"{}\", expected a hold by that name "
                                  "before{}",
                                  step.as, near_key(step.as, holds_)));
  } else if (!known->second.active) {
    refuse("release", fmt::format("\"{}\" was released in line {} already, expected one such step",
                                  step.as, known->second.line));
  } else {
    known->second = {false, now_->source->place.line};
  }
}

void Flow::call_made(const std::string& as, std::string_view key) {
  const auto known = calls_.find(as);
  if (known != calls_.end() && known->second.active) {
    refuse(key, fmt::format("\"{}\" is the name of a call in line {} whose answer was not taken, "
                            "expected another name by as",
                            as, known->second.line));
  }
  calls_[as] = {true, now_->source->place.line};
}

void Flow::on(const CallStep& step) {
  const std::string_view key = now_->source->find("in") != nullptr ? "in" : "call";
  if (alive(step.process, key)) told(step.process, key);
  call_made(step.as, now_->source->find("as") != nullptr ? "as" : "call");
}

Flow::Named* Flow::call_out(const std::string& as, std::string_view key) {
  const auto known = calls_.find(as);
  if (known == calls_.end()) {
    refuse(key, fmt::format("no call is named \"{}\", expected a call by that name before{}", as,
                            near_key(as, calls_)));
    return nullptr;
  }
  if (!known->second.active) {
    refuse(key, fmt::format("the answer of \"{}\" was taken in line {}, expected one such step", as,
                            known->second.line));
    return nullptr;
  }
  return &known->second;
}

void Flow::on(const ReturnsStep& step) {
  if (Named* call = call_out(step.as, "returns")) *call = {false, now_->source->place.line};
}

void Flow::on(const PendingStep& step) {
  call_out(step.as, "pending");
}

void Flow::on(const OrderStep& step) {
  for (const Address& address : step.addresses) {
    if (!address.process.empty() && !was_started(address.process, "order")) return;
  }
}

void Flow::on(const CountStep& step) {
  if (!step.of.process.empty()) {
    was_started(step.of.process, now_->source->find("in") != nullptr ? "in" : "count");
  }
}

void Flow::on(const LoggedStep& step) {
  was_started(step.process, now_->source->find("in") != nullptr ? "in" : "logged");
}

void Flow::on(const FileStep& step) {
  started_templates(step.path, "file");
  if (step.as.empty()) return;
  if (step.state != FileStep::State::kSame) {
    marks_[step.as] = {true, now_->source->place.line};
  } else if (marks_.find(step.as) == marks_.end()) {
    refuse("as", fmt::format("no file was remembered as \"{}\", expected a file step with that as "
                             "before{}",
                             step.as, near_key(step.as, marks_)));
  }
}

void Flow::on(const PlaceStep& step) {
  started_templates(step.path, "place");
}

void Flow::on(const CardStep& step) {
  alive(step.process, "card");
}

void Flow::on(const RepeatStep&) {}

void Flow::report_idle_orders() {
  for (const Idle& idle : idle_) {
    faults_.add(idle.place,
                fmt::format("{} ended in line {} and is not started again, expected the "
                            "order before that",
                            idle.process, idle.line));
  }
}

}  // namespace kv::drill
