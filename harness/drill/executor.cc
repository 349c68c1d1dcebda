#include "harness/drill/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "harness/process/stuck.h"
#include "harness/verdict/trace.h"

namespace kv::drill {
namespace {

using How = Outcome::How;

// Steps that only look: what they find untrue takes nothing away from the steps behind them.
bool only_asserts(const Deed& deed) {
  return std::visit(
      [](const auto& step) {
        using S = std::decay_t<decltype(step)>;
        if constexpr (std::is_same_v<S, ConnectStep>) {
          return step.refused;
        } else {
          return std::is_same_v<S, ExpectEndStep> || std::is_same_v<S, ExpectReplyStep> ||
                 std::is_same_v<S, ExpectNothingStep> || std::is_same_v<S, ReturnsStep> ||
                 std::is_same_v<S, PendingStep> || std::is_same_v<S, OrderStep> ||
                 std::is_same_v<S, CountStep> || std::is_same_v<S, LoggedStep> ||
                 std::is_same_v<S, FileStep> || std::is_same_v<S, CardStep> ||
                 std::is_same_v<S, SendStep> || std::is_same_v<S, SendRestStep>;
        }
      },
      deed);
}

bool goes_on(const Step& step, How how) {
  if (std::holds_alternative<StartStep>(step.deed)) return false;
  if (!step.id.empty()) return true;
  return only_asserts(step.deed) && how != How::kHopeless;
}

std::string_view verb_of(GiveStep::What what) {
  switch (what) {
    case GiveStep::What::kHold:
      return "hold";
    case GiveStep::What::kFail:
      return "fail";
    case GiveStep::What::kSkip:
      return "skip";
    case GiveStep::What::kCrash:
      return "crash";
    case GiveStep::What::kFreeze:
      return "freeze";
    case GiveStep::What::kRun:
      return "run";
  }
  return "give";
}

}  // namespace

Executor::Executor(const Drill& drill, const RunOptions& options, const RunFolder& folder,
                   Situation& situation)
    : drill_(drill),
      options_(options),
      folder_(folder),
      situation_(situation),
      board_(situation.board()) {}

void Executor::run() {
  order_pause();
  for (const Address& step : options_.skip) {
    GiveStep order;
    order.what = GiveStep::What::kSkip;
    order.at = step;
    order.times = 0;
    give(order, "skip " + to_string(step), drill_.position, true);
  }
  run_steps(drill_.steps);
  step_ = nullptr;
}

// False: the drill is over, before its end.
bool Executor::run_steps(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (const auto* repeat = std::get_if<RepeatStep>(&step.deed)) {
      for (std::uint64_t i = 0; i < repeat->times; ++i) {
        if (!run_steps(repeat->steps)) return false;
      }
      continue;
    }
    if (situation_.interrupted()) {
      findings_.interrupted = true;
      return false;
    }
    step_ = &step;
    board_.record("step", ++step_number_, 0, step.text);
    Outcome outcome = std::visit([this](const auto& deed) { return carry_out(deed); }, step.deed);
    if (!judge(step, std::move(outcome))) return false;
  }
  return true;
}

Outcome Executor::carry_out(const RepeatStep&) {
  return {};
}  // run_steps() goes into it

bool Executor::judge(const Step& step, Outcome outcome) {
  CheckResult result{step.check_name(), Verdict::kFail, outcome.why, step.position};
  switch (outcome.how) {
    case How::kDone:
      result.verdict = Verdict::kPass;
      if (!step.id.empty()) put(std::move(result));
      return true;
    case How::kNotJudged:
      return true;
    case How::kInterrupted:
      findings_.interrupted = true;
      return false;
    case How::kVoid:
    case How::kSkipped:
      result.verdict = outcome.how == How::kVoid ? Verdict::kVoid : Verdict::kSkip;
      put(std::move(result));
      return true;
    case How::kBroken:
      result.verdict = Verdict::kError;
      put(result);
      break;
    case How::kWrong:
      put(result);
      break;
    case How::kHung:
      if (!step.id.empty() || only_asserts(step.deed)) {
        put(result);
      } else {
        hang(fmt::format("'{}': {}", step.text, outcome.why), step.position);
      }
      break;
    case How::kHopeless:
      if (!step.id.empty()) put(result);
      break;
  }
  board_.record("failed", step_number_, 0, fmt::format("{}: {}", step.text, outcome.why));
  if (outcome.how != How::kBroken && goes_on(step, outcome.how)) return true;
  board_.record("cut short", step_number_, 0, step.text);
  findings_.cut_at = board_.next_sequence();
  findings_.cut_by = std::move(result);
  return false;
}

void Executor::put(CheckResult result) {
  for (CheckResult& known : findings_.checks) {
    if (known.name != result.name) continue;
    if (result.verdict > known.verdict) known = std::move(result);
    return;
  }
  findings_.checks.push_back(std::move(result));
}

void Executor::hang(const std::string& why, const Position& position) {
  if (findings_.hang) return;
  findings_.hang = why;
  findings_.hang_position = position;
}

std::int64_t Executor::limit_ns() const {
  // A person with a debugger takes the time that it takes.
  if (options_.pause_at) return std::numeric_limits<std::int64_t>::max() / 2;
  return step_ != nullptr && step_->deadline_ns ? *step_->deadline_ns : drill_.deadline_ns;
}

Outcome Executor::wait_for(std::function<bool()> met, std::function<std::string()> hopeless,
                           int first_look_ms) {
  return of_wait(situation_.wait({std::move(met), std::move(hopeless), limit_ns(), first_look_ms}));
}

Outcome Executor::of_wait(const Waited& waited) {
  switch (waited.how) {
    case WaitEnd::kMet:
      return {};
    case WaitEnd::kInterrupted:
      return {How::kInterrupted, {}};
    case WaitEnd::kHopeless:
      return {How::kHopeless, waited.why};
    case WaitEnd::kOverflow:
      return {How::kBroken, waited.why};
    case WaitEnd::kStuck:
      return {How::kHung, "nobody can move any more: " + tell_stuck()};
    case WaitEnd::kDeadline:
      return {How::kHung,
              fmt::format("not within {:.3g} s{}: {}", static_cast<double>(limit_ns()) / 1e9,
                          waited.blind ? " (whether anybody can move cannot be seen here)" : "",
                          tell_stuck())};
  }
  return {};
}

std::string Executor::tell_stuck() {
  situation_.take_in();
  const auto threads = look(situation_.watched());
  const auto waiters =
      who_waits(threads, situation_.moments().processes(), situation_.moments().events());
  // A failure that a proof asks for is not looked into: the engine is left as it is, and in peace.
  const auto& expected = options_.expected_failures;
  const std::string& name = step_ == nullptr || step_->id.empty() ? "no_hang" : step_->id;
  if (std::find(expected.begin(), expected.end(), name) == expected.end()) {
    std::string text = fmt::format("{}\n\n{}\n", step_ == nullptr ? "at the end" : step_->text,
                                   as_table(waiters, now_ns()));
    text += stacks_of(waiters);
    folder_.append("stacks.txt", text);
  }
  return in_short(waiters);
}

// Asks every thread for its stack, and waits until all have answered that can.
std::string Executor::stacks_of(const std::vector<Waiter>& waiters) {
  constexpr std::int64_t kLimitNs = 2'000'000'000;
  constexpr int kSymbolsLimitMs = 5'000;
  const std::size_t from = situation_.moments().events().size();
  std::size_t asked = 0;
  for (const Waiter& waiter : waiters) {
    if (waiter.where == "stopped") continue;
    if (board_.dump_stack(waiter.pid, waiter.tid)) ++asked;
  }
  const auto answers = [this, from] {
    const auto& events = situation_.moments().events();
    std::vector<const Event*> stacks;
    for (std::size_t i = from; i < events.size(); ++i) {
      if (events[i].kind == EventKind::kStack && !events[i].torn) stacks.push_back(&events[i]);
    }
    return stacks;
  };
  situation_.wait({[&] { return answers().size() >= asked; }, nullptr, kLimitNs, 20});
  const std::string addr2line = find_addr2line();
  std::string text;
  for (const Event* stack : answers()) {
    text += fmt::format("{}:\n{}\n", who(*stack, situation_.moments().processes()),
                        symbolised(stack->text, addr2line, kSymbolsLimitMs));
  }
  return text;
}

std::uint32_t Executor::give(const GiveStep& step, std::string name, const Position& position,
                             bool of_proof) {
  Order order;
  switch (step.what) {
    case GiveStep::What::kHold:
      order.action = Action::kHold;
      break;
    case GiveStep::What::kFail:
      order.action = Action::kFail;
      break;
    case GiveStep::What::kSkip:
      order.action = Action::kSkip;
      break;
    case GiveStep::What::kCrash:
      order.action = Action::kCrash;
      break;
    case GiveStep::What::kFreeze:
      order.action = Action::kFreeze;
      break;
    case GiveStep::What::kRun:
      order.action = Action::kRun;
      break;
  }
  order.site = step.at.site;
  order.process = step.at.process;
  order.thread = step.at.thread;
  order.key = step.at.key;
  order.first_hit = step.at.hit.value_or(0);
  order.times = step.times;
  order.code = step.code;
  order.command = step.command;
  if (step.what == GiveStep::What::kRun) {
    order.arguments = to_json(step.arguments);
    order.call_name = step.as;
    ScriptedCall call;
    call.name = step.as;
    call.process = step.at.process;
    call.command = step.command;
    call.delivered = true;
    order.call_id = situation_.add_call(std::move(call));
  }
  const std::uint32_t id = board_.give(order);
  if (name.empty()) name = fmt::format("{} {}", verb_of(step.what), to_string(step.at));
  given_.push_back({id, std::move(name), position, step, of_proof});
  return id;
}

int Executor::crash_signal(std::int64_t order) const {
  for (const Given& given : given_) {
    if (given.id == order && given.step.what == GiveStep::What::kCrash) {
      return static_cast<int>(given.step.code);
    }
  }
  return 0;
}

void Executor::judge_orders() {
  for (const Given& given : given_) {
    if (given.step.may_miss || board_.state(given.id).acted > 0) continue;
    // What the rest of a drill cut short would have reached is not known. What a proof leaves out
    // must have been reached all the same: else it proves nothing.
    if (findings_.cut_at && !given.of_proof) continue;
    const std::string why =
        fmt::format("{} never fired: no thread reached it", to_string(given.step.at));
    const std::string death = first_death(given.step.at.process);
    put({given.name, Verdict::kVoid, death.empty() ? why : death + " before: " + why,
         given.position});
  }
}

}  // namespace kv::drill
