#include "harness/scenario/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/scenario/units.h"

namespace kv::drill {

void Flow::check(const std::vector<Draft>& drafts) {
  collect_ids(drafts);
  if (run(drafts)) report_idle_orders();
}

void Flow::collect_ids(const std::vector<Draft>& drafts) {
  const auto& defaults = world_.language.checks;
  for (const Draft& draft : drafts) {
    const std::string& id = draft.step.id;
    const auto report = [&](std::string message) {
      faults_.add(draft.place("id"), std::move(message));
    };
    if (!id.empty()) {
      if (std::find(defaults.begin(), defaults.end(), id) != defaults.end()) {
        report(fmt::format("id \"{}\" is a check that every drill has, expected another name", id));
      } else if (std::find(ids_.begin(), ids_.end(), id) != ids_.end()) {
        report(fmt::format("id \"{}\" is given twice, expected one step by that name", id));
      } else {
        ids_.push_back(id);
      }
    }
    collect_ids(draft.body);
  }
}

// False: from some step on nothing can be said.
bool Flow::run(const std::vector<Draft>& drafts) {
  for (const Draft& draft : drafts) {
    now_ = &draft;
    if (draft.lost) return false;
    draft.step.deed.check(*this);
    if (!run_body(draft)) return false;
  }
  return true;
}

// Twice, because the second round meets what the first left.
bool Flow::run_body(const Draft& draft) {
  const std::uint64_t before = starts_;
  const std::int64_t ns_before = advanced_ns_;
  if (!run(draft.body)) return false;
  if (draft.step.rounds == 1) return true;
  if (starts_ <= kMostStarts) {
    starts_ = std::min(kMostStarts, starts_ + (starts_ - before) * (draft.step.rounds - 2));
  }
  if (const std::int64_t ns = advanced_ns_ - ns_before; ns > 0 && advanced_ns_ <= kFarthest) {
    const auto more = static_cast<std::int64_t>(draft.step.rounds - 2);
    advanced_ns_ = more > (kFarthest - advanced_ns_) / ns ? kFarthest : advanced_ns_ + ns * more;
  }
  const bool outer = std::exchange(second_round_, true);
  const bool known = run(draft.body);
  second_round_ = outer;
  return known;
}

void Flow::refuse(std::string_view key, std::string message) {
  if (now_->broken) return;
  if (second_round_) message += " [in the second round of the repeat]";
  const Node* value = now_->source->find(key);
  if (value != nullptr) {
    faults_.add(*value, std::move(message));
  } else {
    faults_.add(now_->source->place, std::move(message));
  }
}

// ---- processes

void Flow::start(const std::string& process) {
  processes_[process] = {Process::kAlive, line()};
  ever_started_.insert(process);
  std::erase_if(idle_, [&](const Idle& idle) { return idle.process == process; });
  if (starts_ <= kMostStarts && ++starts_ > kMostStarts) {
    faults_.add(now_->source->place,
                fmt::format("the start of a process number {}, expected at most {}: the board has "
                            "no place for more",
                            starts_, kMostStarts));
  }
}

void Flow::advance(std::int64_t ns) {
  if (advanced_ns_ > kFarthest) return;
  advanced_ns_ += ns;
  if (advanced_ns_ <= kFarthest) return;
  faults_.add(now_->source->place,
              "with this advance the clock has moved by more than 100 years, expected at most that "
              "(876000h) in a drill");
}

bool Flow::was_started(const std::string& process, std::string_view key) {
  if (processes_[process].state != Process::kNew) return true;
  refuse(key, fmt::format("{0} has not been started here, expected {{start = \"{0}\"}} before",
                          process));
  return false;
}

bool Flow::alive(const std::string& process, std::string_view key) {
  if (!was_started(process, key)) return false;
  const ProcessState& state = processes_[process];
  if (state.state == Process::kAlive || state.state == Process::kTold) return true;
  refuse(key, fmt::format("{} {} in line {}, expected the step before that", process,
                          state.state == Process::kKilled ? "was killed" : "ended", state.line));
  return false;
}

bool Flow::told(const std::string& process, std::string_view key) {
  const ProcessState& state = processes_[process];
  if (state.state != Process::kTold) return false;
  refuse(key, fmt::format("{} was told to end in line {}, expected {}", process, state.line,
                          key == "exit" ? "ended" : "the step before that"));
  return true;
}

void Flow::started_templates(const std::string& path, std::string_view key) {
  const auto names = template_names(path);
  if (!names) return;
  for (const std::string& name : *names) {
    const auto dot = name.find('.');
    if (dot != std::string::npos) was_started(name.substr(0, dot), key);
  }
}

void Flow::order_given(const std::string& process, std::string_view key) {
  const ProcessState& state = processes_[process];
  if (now_->broken) return;
  if (state.state == Process::kEnded || state.state == Process::kKilled) {
    idle_.push_back({process, now_->place(key), state.line});
  }
}

void Flow::report_idle_orders() {
  for (const Idle& idle : idle_) {
    faults_.add(idle.place,
                fmt::format("{} ended in line {} and is not started again, expected the "
                            "order before that",
                            idle.process, idle.line));
  }
}

// ---- clients

Flow::ClientState* Flow::usable(const std::string& client) {
  const auto found = clients.find(client);
  if (found == clients.end()) {
    refuse("client", fmt::format("client \"{}\" is not connected, expected connect before{}",
                                 client, near_key(client, clients)));
    return nullptr;
  }
  if (found->second.state == Client::kGone || found->second.state == Client::kRefused) {
    refuse("client", fmt::format("client \"{}\" was {} in line {}, expected connect before", client,
                                 found->second.state == Client::kGone ? "closed" : "refused",
                                 found->second.line));
    return nullptr;
  }
  return &found->second;
}

Flow::ClientState* Flow::sending(const std::string& client) {
  ClientState* state = usable(client);
  if (state != nullptr && state->half_closed) {
    refuse("client", fmt::format("client \"{}\" closed its sending half in line {}, expected no "
                                 "send behind it",
                                 client, state->line));
  }
  return state;
}

Flow::ClientState* Flow::receiving(const std::string& client) {
  ClientState* state = usable(client);
  if (state != nullptr && state->state == Client::kEnd) {
    refuse("client", fmt::format("client \"{}\" saw its end in line {}, expected nothing behind it",
                                 client, state->line));
  }
  return state;
}

// ---- calls

void Flow::call_made(const std::string& as, std::string_view key) {
  const auto known = calls_.find(as);
  if (known != calls_.end() && known->second.active) {
    refuse(key, fmt::format("\"{}\" is the name of a call in line {} whose answer was not taken, "
                            "expected another name by as",
                            as, known->second.line));
  }
  calls_[as] = {true, line()};
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

}  // namespace kv::drill
