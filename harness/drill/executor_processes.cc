// What steps about processes and clients share.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "harness/drill/executor.h"
#include "harness/process/leftovers.h"

namespace kv::drill {

using How = Outcome::How;

namespace {

template <class T>
void without(std::vector<T>* all, const std::vector<T>& some) {
  std::erase_if(*all, [&some](const T& one) {
    return std::find(some.begin(), some.end(), one) != some.end();
  });
}

}  // namespace

std::string Executor::nobody_left(const std::string& process) {
  if (process.empty()) {
    for (const Instance& instance : situation_.instances()) {
      if (instance.lives()) return {};
    }
    const std::string death = first_death(process);
    return (death.empty() ? "" : death + ", and ") + "no process lives any more";
  }
  const Instance* instance = situation_.find(process);
  if (instance == nullptr) return process + " was not started";
  if (instance->lives()) return {};
  return fmt::format("{} {} by {} before this step was done", process,
                     instance->end->by_signal ? "died" : "ended", to_string(*instance->end));
}

std::string Executor::first_death(const std::string& process) {
  const Instance* first = nullptr;
  for (const Instance& instance : situation_.instances()) {
    if (!process.empty() && instance.name() != process) continue;
    if (!instance.end || !instance.end->by_signal || instance.expected.any) continue;
    if (first == nullptr || instance.ended_at < first->ended_at) first = &instance;
  }
  if (first == nullptr) return {};
  return fmt::format("{} died by {}", first->name(), to_string(*first->end));
}

Outcome Executor::wait_for_end(const Instance& instance) {
  Outcome outcome = wait_for([&instance] { return !instance.lives(); });
  if (outcome.how != How::kDone || step_->id.empty() || !instance.end_said) return outcome;
  if (as_said(*instance.end, instance.expected)) return outcome;
  return wrong(fmt::format("{} ended by {}, expected {}", instance.name(), to_string(*instance.end),
                           to_string(instance.expected)));
}

bool Executor::tell_to_end(Instance& instance, const std::string& how, int code) {
  look_at_what_it_kept(instance);
  if (!instance.lives()) return true;
  instance.asked = true;
  instance.end_said = true;
  instance.expected = {};
  if (how == "abort") {
    instance.expected.signal = SIGABRT;
  } else {
    instance.expected.code = code;
  }
  instance.gentle = how == "return" || how == "exit";
  return board_.tell_exit(instance.name(), how, code);
}

// After a shutdown that was done nothing of the engine may remain that was not there when it was
// ready: not as many things as then, but those. Threads take a moment to be gone; whatever is there
// when nobody moves any more stays.
void Executor::look_at_what_it_kept(Instance& instance) {
  if (!instance.at_ready || !instance.shut_down) return;
  Held kept;
  const auto look_again = [&] {
    kept = held_by(instance.child.pid());
    without(&kept.descriptors, instance.at_ready->descriptors);
    without(&kept.threads, instance.at_ready->threads);
    return (kept.descriptors.empty() && kept.threads.empty()) || !instance.lives();
  };
  if (situation_.wait({look_again, nullptr, limit_ns(), 1}).how == WaitEnd::kMet) return;
  for (const OpenDescriptor& one : kept.descriptors) {
    instance.descriptors_left.push_back(to_string(one));
  }
  for (const LivingThread& one : kept.threads) {
    instance.threads_left.push_back(fmt::format("{} (tid {})", label_of(instance, one), one.tid));
  }
}

// Its label on the board, or what the kernel calls it.
std::string Executor::label_of(const Instance& instance, const LivingThread& thread) const {
  const auto& processes = situation_.moments().processes();
  if (instance.index && *instance.index < processes.size()) {
    for (const ThreadInfo& known : processes[*instance.index].threads) {
      if (known.tid == thread.tid && !known.label.empty()) return known.label;
    }
  }
  return thread.name;
}

std::string Executor::without_clock(const std::string& process) {
  const Instance* instance = situation_.find(process);
  if (!drill_.manual_clock || instance == nullptr || !instance->index) return {};
  if (board_.processes().at(*instance->index).takes_clock) return {};
  return fmt::format(
      "{} never took the drill's clock (kvdrill_on_clock()): its time limits run in real time",
      process);
}

tl::expected<std::string, std::string> Executor::expand(const std::string& path) {
  std::string text;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t open = path.find('{', at);
    const std::size_t close = open == std::string::npos ? open : path.find('}', open);
    if (close == std::string::npos) return text + path.substr(at);
    text += path.substr(at, open - at);
    const std::string name = path.substr(open + 1, close - open - 1);
    at = close + 1;
    if (name == "run") {
      text += folder_.path();
      continue;
    }
    const auto dot = name.find('.');
    const std::string process = name.substr(0, dot);
    const std::string fact = dot == std::string::npos ? "" : name.substr(dot + 1);
    const Instance* instance = situation_.find(process);
    if (instance == nullptr) return tl::unexpected(process + " was not started");
    const auto known = instance->facts.find(fact);
    if (known == instance->facts.end()) {
      return tl::unexpected(fmt::format("{} has announced no '{}'", process, fact));
    }
    text += known->second;
  }
  return text;
}

Client* Executor::connected(const std::string& name, Outcome* outcome) {
  const auto found = situation_.clients().find(name);
  if (found != situation_.clients().end() && found->second.open()) return &found->second;
  *outcome = unconnected_.count(name) != 0
                 ? Outcome{How::kNotJudged, {}}
                 : Outcome{How::kWrong, fmt::format("{} is not connected", name)};
  return nullptr;
}

void Executor::end_gently() {
  step_ = nullptr;
  for (const Given& given : given_) {
    if (given.action == Action::kHold || given.action == Action::kFreeze) board_.release(given.id);
  }
  situation_.take_in();
  for (Instance& instance : situation_.instances()) {
    if (!instance.lives()) continue;
    instance.child.signal(SIGCONT);  // a `signal` step may have stopped it
    if (!instance.asked) tell_to_end(instance, "return", 0);
  }
  const Outcome outcome = wait_for([this] {
    const auto& all = situation_.instances();
    return std::none_of(all.begin(), all.end(), [](const Instance& one) { return one.lives(); });
  });
  if (outcome.how == How::kInterrupted) findings_.interrupted = true;
  if (outcome.how == How::kHung) {
    std::string names;
    for (const Instance& instance : situation_.instances()) {
      if (instance.lives()) names += (names.empty() ? "" : ", ") + instance.name();
    }
    hang(fmt::format("{} did not end when told to: {}", names, outcome.why), drill_.position);
  }
}

}  // namespace kv::drill
