// Carries out the steps of a drill, in their order, one at a time, and judges each where it is
// carried out.
//
// A step that asserts something and finds it untrue fails under its name, and the drill goes on.
// So does every step that was given a name. A step without a name that the rest builds on (start,
// connect, wait, call, exit, ...) cuts the drill short when it cannot be carried out: the rest is
// neither run nor judged. What a wait without a name failed of is then said by no_hang, or by
// no_crash when a process that ended too early is the reason.
//
// Threads: the supervisor's single thread. Ownership: borrows everything it is given.
#ifndef HARNESS_DRILL_EXECUTOR_H_
#define HARNESS_DRILL_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "harness/drill/executor_situation.h"
#include "harness/drill/run_folder.h"
#include "harness/drill/supervisor.h"
#include "harness/process/leftovers.h"
#include "harness/process/stuck.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/checks.h"
#include "harness/wire/wire.h"

namespace kv::drill {

// An order to the engine as a drill gives it, and what became of it.
struct Given {
  Action action = Action::kHold;
  Address at;
  std::string as;           // name, for a release
  std::int64_t code = 0;    // fail: the code; crash: the signal
  std::uint64_t times = 1;  // 0: always
  std::string command;      // run
  Value arguments;          // run
  bool may_miss = false;    // an order that never acts does not make the run void
  // Filled in by Executor::give().
  std::uint32_t id = 0;  // on the board
  std::string name;      // of its check
  Position position;
  bool of_proof = false;
};

// What the steps came to.
struct Findings {
  std::vector<CheckResult> checks;  // of named steps and of failed ones, each name once
  std::optional<std::string> hang;
  Position hang_position;
  // Set when the drill was cut short: from where on, and by which step.
  std::optional<std::uint64_t> cut_at;
  CheckResult cut_by;
  bool interrupted = false;
};

class Executor {
 public:
  Executor(const Drill& drill, const RunOptions& options, const RunFolder& folder,
           Situation& situation);

  // Gives the orders of a proof, then carries out the steps.
  void run();
  // Releases everything and tells every process that still lives to end, and waits for it.
  // Not for a drill that was cut short.
  void end_gently();
  // Checks for orders that never acted; for when everything has ended.
  void judge_orders();

  Findings& findings() { return findings_; }
  // The signal of the crash order with this id on the board; 0: it is no such order.
  int crash_signal(std::int64_t order) const;

  // ---- what steps use (see scenario/step.h)
  const Drill& drill() const { return drill_; }
  const RunOptions& options() const { return options_; }
  const RunFolder& folder() const { return folder_; }
  Situation& situation() { return situation_; }
  const Moments& moments() const { return situation_.moments(); }
  Board& board() { return board_; }
  const Ahead& ahead() const { return ahead_; }
  const Step& step() const { return *step_; }  // the one being carried out

  // Waits with the current step's deadline; `what` completes "nobody can move any more: ".
  Outcome wait_for(std::function<bool()> met, std::function<std::string()> hopeless = nullptr,
                   int first_look_ms = 4);
  // For a step about what might still come: waits until nobody can move any more, so that what is
  // seen then stays so. Earlier when `wrong`: what must not come has come; or when `right`: all
  // that could matter is there. Void where it cannot be told ("whether WHAT could not be told").
  Outcome settle(const std::string& what, const std::function<bool()>& wrong = nullptr,
                 const std::function<bool()>& right = nullptr);
  // The outcome of a wait that did not come to its goal; who waits for what goes into stacks.txt.
  Outcome of_wait(const Waited& waited);
  std::int64_t limit_ns() const;
  // Why a wait for something of this process (empty: of any) is in vain; empty: it is not.
  std::string nobody_left(const std::string& process);
  // The text with {run} and {PROCESS.FACT} filled in.
  tl::expected<std::string, std::string> expand(const std::string& path);

  // The order of the present step.
  void give(Given order);
  std::vector<Given>& given() { return given_; }
  // Tells it to end, after a look at what it kept.
  bool tell_to_end(Instance& instance, const std::string& how, int code);
  // Waits for its end. A step with a name asserts how it ended, too; no_crash does so for all.
  Outcome wait_for_end(const Instance& instance);
  // After a shutdown that was done, and before the process is ended by an order or a signal.
  void look_at_what_it_kept(Instance& instance);
  // The client, connected; null: `outcome` says why not.
  Client* connected(const std::string& name, Outcome* outcome);
  std::set<std::string>& unconnected() { return unconnected_; }
  std::map<std::string, FileId>& remembered() { return remembered_; }
  // Paths that the drill itself put there, folders before what is in them, and what it put there:
  // that is no leftover.
  struct Placed {
    std::string path;
    FileId file;
  };
  std::vector<Placed>& placed() { return placed_; }
  // "worker never took the drill's clock ..."; empty: it did, or its clock is not the drill's.
  std::string without_clock(const std::string& process);

 private:
  // --- executor_pause.cc
  void order_pause();
  bool stand();

  bool run_steps(const std::vector<Step>& steps);
  bool run_one(const Step& step);
  bool judge(const Step& step, Outcome outcome);
  void put(CheckResult result);
  // The steps with a name that are left when the drill is over before its end.
  void put_not_judged(const std::vector<Step>& steps);
  void hang(const std::string& why, const Position& position);
  std::uint32_t give(Given order, std::string name, const Position& position, bool of_proof);
  std::string tell_stuck();
  // "worker has replaced itself by exec and is cat now; ", of all that have.
  std::string replaced_by_exec();
  std::string label_of(const Instance& instance, const LivingThread& thread) const;
  std::string stacks_of(const std::vector<Waiter>& waiters);
  // "worker died by SIGSEGV": the first of that name (empty: of all) that a signal ended; empty:
  // there is none.
  std::string first_death(const std::string& process);

  const Drill& drill_;
  const RunOptions& options_;
  const RunFolder& folder_;
  Situation& situation_;
  Board& board_;
  const Ahead ahead_;
  Findings findings_;
  const Step* step_ = nullptr;  // the one being carried out
  std::vector<Given> given_;
  std::uint32_t pause_order_ = 0;  // 0: none, or it is over
  std::map<std::string, FileId> remembered_;
  std::set<std::string> unconnected_;  // clients whose connecting failed
  std::vector<Placed> placed_;
  std::int64_t step_number_ = 0;
};

}  // namespace kv::drill

#endif  // HARNESS_DRILL_EXECUTOR_H_
