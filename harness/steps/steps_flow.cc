#include "harness/steps/steps_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

#include "harness/verdict/checks.h"
#include "harness/scenario/names.h"
#include "harness/scenario/units.h"

namespace kv::drill {
namespace {

template <typename Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> all;
  for (const auto& [key, value] : map) all.push_back(key);
  return all;
}

std::string near_word(const std::string& word, const std::vector<std::string>& words) {
  const std::string near = nearest(word, words);
  return near.empty() || near == word ? std::string() : fmt::format(" (nearest: {})", near);
}

}  // namespace

void Flow::check(const std::vector<Draft>& drafts) {
  collect_ids(drafts);
  if (run(drafts)) report_idle_orders();
}

void Flow::collect_ids(const std::vector<Draft>& drafts) {
  const auto& defaults = default_check_names();
  for (const Draft& draft : drafts) {
    const std::string& id = draft.step.id;
    now_ = &draft;
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
    one(draft);
    if (const auto* repeat = std::get_if<RepeatStep>(&draft.step.deed)) {
      // Twice, because the second round meets what the first left.
      if (!run(draft.body)) return false;
      if (repeat->times == 1) continue;
      const bool outer = std::exchange(second_round_, true);
      const bool known = run(draft.body);
      second_round_ = outer;
      if (!known) return false;
    }
  }
  return true;
}

void Flow::one(const Draft& draft) {
  std::visit([this](const auto& step) { on(step); }, draft.step.deed);
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

void Flow::on(const StartStep& step) {
  ProcessState& state = processes_[step.process];
  if (state.state != Process::kNew && state.state != Process::kEnded) {
    const char* what = state.state == Process::kAlive  ? "started"
                       : state.state == Process::kTold ? "told to end"
                                                       : "killed";
    refuse("start", fmt::format("{} was {} in line {} and has not ended, expected {} before",
                                step.process, what, state.line,
                                state.state == Process::kAlive ? "exit or ended" : "ended"));
  }
  state = {Process::kAlive, now_->source->place.line};
  ever_started_.insert(step.process);
  std::erase_if(idle_, [&](const Idle& idle) { return idle.process == step.process; });
}

void Flow::on(const SignalStep& step) {
  if (!alive(step.process, "to")) return;
  if (step.signal == SIGKILL) {
    processes_[step.process] = {Process::kKilled, now_->source->place.line};
  }
}

void Flow::on(const ExitStep& step) {
  if (!alive(step.process, "exit") || told(step.process, "exit")) return;
  processes_[step.process] = {step.wait ? Process::kEnded : Process::kTold,
                              now_->source->place.line};
}

void Flow::on(const EndedStep& step) {
  if (!was_started(step.process, "ended")) return;
  ProcessState& state = processes_[step.process];
  if (state.state == Process::kEnded) {
    refuse("ended", fmt::format("{} ended in line {} already, expected one such step", step.process,
                                state.line));
    return;
  }
  if (state.state == Process::kKilled && step.code) {
    refuse("code", fmt::format("{} was killed in line {} and has no exit code, expected signal = "
                               "\"KILL\"",
                               step.process, state.line));
  } else if (state.state == Process::kKilled && step.signal && *step.signal != SIGKILL) {
    refuse("signal", fmt::format("{} was killed in line {}, expected signal = \"KILL\"",
                                 step.process, state.line));
  }
  state = {Process::kEnded, now_->source->place.line};
}

// ---- clients

void Flow::started_templates(const std::string& path, std::string_view key) {
  const auto names = template_names(path);
  if (!names) return;
  for (const std::string& name : *names) {
    const auto dot = name.find('.');
    if (dot != std::string::npos) was_started(name.substr(0, dot), key);
  }
}

void Flow::on(const ConnectStep& step) {
  const auto known = clients_.find(step.client);
  if (known != clients_.end() &&
      (known->second.state == Client::kOpen || known->second.state == Client::kEnd)) {
    refuse("client", fmt::format("client \"{}\" was connected in line {} and not closed, expected "
                                 "close before, or another name",
                                 step.client, known->second.line));
  }
  if (!step.process.empty()) {
    // A process that is gone can still refuse.
    if (step.refused) {
      was_started(step.process, "connect");
    } else {
      alive(step.process, "connect");
    }
  } else {
    started_templates(step.path, "connect");
  }
  clients_[step.client] = {step.refused ? Client::kRefused : Client::kOpen, false, false,
                           now_->source->place.line};
}

Flow::ClientState* Flow::usable(const std::string& client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) {
    refuse("client", fmt::format("client \"{}\" is not connected, expected connect before{}",
                                 client, near_word(client, keys(clients_))));
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

void Flow::on(const SendStep& step) {
  ClientState* client = usable(step.client);
  if (client == nullptr) return;
  if (client->half_closed) {
    refuse("client", fmt::format("client \"{}\" closed its sending half in line {}, expected no "
                                 "send behind it",
                                 step.client, client->line));
  } else if (client->rest) {
    refuse("client", fmt::format("client \"{}\" holds back the rest of what it sent in line {}, "
                                 "expected send_rest before",
                                 step.client, client->line));
  }
  client->rest = step.first.has_value();
  client->line = now_->source->place.line;
}

void Flow::on(const SendRestStep& step) {
  ClientState* client = usable(step.client);
  if (client == nullptr) return;
  if (client->half_closed) {
    refuse("client", fmt::format("client \"{}\" closed its sending half in line {}, expected no "
                                 "send behind it",
                                 step.client, client->line));
  } else if (!client->rest) {
    refuse("send_rest", fmt::format("client \"{}\" holds nothing back, expected a send with first "
                                    "before",
                                    step.client));
  }
  client->rest = step.first.has_value();
}

void Flow::on(const CloseStep& step) {
  ClientState* client = usable(step.client);
  if (client == nullptr) return;
  if (step.half && client->half_closed) {
    refuse("half_close", fmt::format("client \"{}\" closed its sending half in line {} already, "
                                     "expected one such step",
                                     step.client, client->line));
  }
  if (step.half) {
    client->half_closed = true;
  } else {
    client->state = Client::kGone;
  }
  client->line = now_->source->place.line;
}

void Flow::expect_something(const std::string& name) {
  const ClientState* client = usable(name);
  if (client == nullptr || client->state != Client::kEnd) return;
  refuse("client", fmt::format("client \"{}\" saw its end in line {}, expected nothing behind it",
                               name, client->line));
}

void Flow::on(const ExpectEndStep& step) {
  expect_something(step.client);
  const auto client = clients_.find(step.client);
  if (client == clients_.end() || client->second.state != Client::kOpen) return;
  client->second.state = Client::kEnd;
  client->second.line = now_->source->place.line;
}

void Flow::on(const ExpectReplyStep& step) {
  expect_something(step.client);
}
void Flow::on(const ExpectNothingStep& step) {
  expect_something(step.client);
}

}  // namespace kv::drill
