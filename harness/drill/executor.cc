#include "harness/drill/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "harness/process/stacks.h"
#include "harness/process/stuck.h"
#include "harness/verdict/trace.h"

namespace kv::drill {
namespace {

using How = Outcome::How;

bool goes_on(const Step& step, How how) {
  if (step.deed.carries_all() || how == How::kOutrun) return false;
  if (!step.id.empty()) return true;
  return step.deed.only_looks() && how != How::kHopeless;
}

}  // namespace

Executor::Executor(const Drill& drill, const RunOptions& options, const RunFolder& folder,
                   Situation& situation)
    : drill_(drill),
      options_(options),
      folder_(folder),
      situation_(situation),
      board_(situation.board()),
      ahead_(foretold(drill.steps)) {}

void Executor::run() {
  order_pause();
  for (const Address& step : options_.skip) {
    Given order;
    order.action = Action::kSkip;
    order.at = step;
    order.times = 0;
    give(std::move(order), "skip " + to_string(step), drill_.position, true);
  }
  if (!run_steps(drill_.steps) && findings_.cut_at) put_not_judged(drill_.steps);
  step_ = nullptr;
}

// False: the drill is over, before its end.
bool Executor::run_steps(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (step.body.empty()) {
      if (!run_one(step)) return false;
      continue;
    }
    for (std::uint64_t i = 0; i < step.rounds; ++i) {
      if (!run_steps(step.body)) return false;
    }
  }
  return true;
}

bool Executor::run_one(const Step& step) {
  if (situation_.interrupted()) {
    findings_.interrupted = true;
    return false;
  }
  step_ = &step;
  board_.record("step", ++step_number_, 0, step.text);
  return judge(step, step.deed.carry_out(*this));
}

bool Executor::judge(const Step& step, Outcome outcome) {
  CheckResult result{step.check_name(), Verdict::kFail, outcome.why, step.position};
  switch (outcome.how) {
    case How::kDone:
      result.verdict = Verdict::kPass;
      if (!step.id.empty()) put(std::move(result));
      return true;
    case How::kNotJudged:
      result.verdict = Verdict::kNotJudged;
      result.why = "an earlier failure took away what it needs";
      if (!step.id.empty()) put(std::move(result));
      return true;
    case How::kInterrupted:
      findings_.interrupted = true;
      return false;
    case How::kVoid:
    case How::kSkipped:
      result.verdict = outcome.how == How::kVoid ? Verdict::kVoid : Verdict::kSkip;
      put(std::move(result));
      return true;
    case How::kOutrun:
      result.verdict = Verdict::kVoid;
      put(result);
      break;
    case How::kBroken:
      result.verdict = Verdict::kError;
      put(result);
      break;
    case How::kWrong:
      put(result);
      break;
    case How::kHung:
      if (!step.id.empty() || step.deed.only_looks()) {
        put(result);
      } else {
        hang(fmt::format("'{}': {}", step.text, outcome.why), step.position);
      }
      break;
    case How::kHopeless:
      // What becomes of a start is never left to what a later step says of the end or the log.
      if (!step.id.empty() || step.deed.carries_all()) put(result);
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

void Executor::put_not_judged(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    put_not_judged(step.body);
    const auto& known = findings_.checks;
    const bool judged = std::any_of(known.begin(), known.end(), [&step](const CheckResult& check) {
      return check.name == step.id;
    });
    if (step.id.empty() || judged) continue;
    put({step.id, Verdict::kNotJudged, "the drill was cut short", step.position});
  }
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

Outcome Executor::settle(const std::string& what, const std::function<bool()>& wrong,
                         const std::function<bool()>& right) {
  const Address expired{kExpiredNote, {}, {}, {}, {}};
  const std::uint64_t before = situation_.moments().count(expired);
  bool is_wrong = false;
  const Waited waited =
      situation_.wait({[&] { return (is_wrong = wrong && wrong()) || (right && right()); }, nullptr,
                       limit_ns(), 1});
  const std::string limit = waited.limit.empty() ? std::string("a timed wait") : waited.limit;
  switch (waited.how) {
    case WaitEnd::kStuck:
      return {};
    case WaitEnd::kMet:
      if (drill_.manual_clock || !is_wrong) return {};
      if (waited.limit.empty() && situation_.moments().count(expired) == before) return {};
      return {How::kOutrun,
              fmt::format("whether {} could not be told: the drill's clock is real, and a limit of "
                          "the engine's own ran out meanwhile: {}",
                          what, limit)};
    case WaitEnd::kDeadline:
      return {How::kVoid,
              fmt::format("whether {} could not be told within {:.3g} s: {}", what,
                          static_cast<double>(limit_ns()) / 1e9,
                          waited.limit.empty() ? "somebody kept moving"
                                               : "a limit of the engine's own runs: " + limit)};
    default:
      return of_wait(waited);
  }
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
  return replaced_by_exec() + in_short(waiters);
}

std::string Executor::replaced_by_exec() {
  std::string text;
  for (const Instance& instance : situation_.instances()) {
    const pid_t pid = instance.child.pid();
    if (!instance.lives() || !instance.index || board_.is_mapped_by(pid)) continue;
    text += fmt::format("{} has replaced itself by exec and is {} now; ", instance.name(),
                        process_name(pid));
  }
  return text;
}

// Asks every thread for its stack, and waits until all have answered that can.
std::string Executor::stacks_of(const std::vector<Waiter>& waiters) {
  constexpr std::int64_t kLimitNs = 2'000'000'000;
  constexpr int kSymbolsLimitMs = 5'000;
  const std::size_t from = situation_.moments().events().size();
  std::size_t asked = 0;
  for (const Waiter& waiter : waiters) {
    if (waiter.stopped) continue;
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
                        in_full(looked_up(stack->text, addr2line, kSymbolsLimitMs)));
  }
  return text;
}

void Executor::give(Given order) {
  give(std::move(order), step_->check_name(), step_->position, false);
}

std::uint32_t Executor::give(Given given, std::string name, const Position& position,
                             bool of_proof) {
  Order order;
  order.action = given.action;
  order.site = given.at.site;
  order.process = given.at.process;
  order.thread = given.at.thread;
  order.key = given.at.key;
  order.first_hit = given.at.hit.value_or(0);
  order.times = given.times;
  order.code = given.code;
  order.command = given.command;
  if (given.action == Action::kRun) {
    order.arguments = to_json(given.arguments);
    order.call_name = given.as;
    ScriptedCall call;
    call.name = given.as;
    call.process = given.at.process;
    call.command = given.command;
    call.delivered = true;
    order.call_id = situation_.add_call(std::move(call));
  }
  given.id = board_.give(order);
  given.name = std::move(name);
  given.position = position;
  given.of_proof = of_proof;
  given_.push_back(std::move(given));
  return given_.back().id;
}

int Executor::crash_signal(std::int64_t order) const {
  for (const Given& given : given_) {
    if (given.id == order && given.action == Action::kCrash) {
      return static_cast<int>(given.code);
    }
  }
  return 0;
}

void Executor::judge_orders() {
  for (const Given& given : given_) {
    if (given.may_miss || board_.state(given.id).acted > 0) continue;
    // What the rest of a drill cut short would have reached is not known. What a proof leaves out
    // must have been reached all the same: else it proves nothing.
    if (findings_.cut_at && !given.of_proof) continue;
    const std::string why =
        fmt::format("{} never fired: no thread reached it", to_string(given.at));
    const std::string death = first_death(given.at.process);
    put({given.name, Verdict::kVoid, death.empty() ? why : death + " before: " + why,
         given.position});
  }
}

}  // namespace kv::drill
