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

#include "harness/verdict/checks.h"
#include "harness/drill/executor_situation.h"
#include "harness/process/leftovers.h"
#include "harness/drill/run_folder.h"
#include "harness/scenario/scenario.h"
#include "harness/process/stuck.h"
#include "harness/drill/supervisor.h"

namespace kv::drill {

// What became of one step.
struct Outcome {
  enum class How {
    kDone,
    kWrong,      // it asserts something that is not so, or cannot be carried out
    kHung,       // it waited for something that did not come
    kHopeless,   // a process ended, and with it the chance
    kVoid,       // nobody could tell
    kSkipped,    // it cannot be judged with this driver
    kBroken,     // the harness could not do its part
    kNotJudged,  // an earlier failure took away what it needs
    kInterrupted,
  };
  How how = How::kDone;
  std::string why;
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
  // Paths that the drill itself put there, folders before what is in them: they are no leftovers.
  const std::vector<std::string>& placed() const { return placed_; }

 private:
  struct Given {
    std::uint32_t id = 0;  // on the board
    std::string name;      // of its check
    Position position;
    GiveStep step;
    bool of_proof = false;
  };

  // --- executor_pause.cc
  void order_pause();
  bool stand();

  bool run_steps(const std::vector<Step>& steps);
  bool judge(const Step& step, Outcome outcome);
  void put(CheckResult result);
  void hang(const std::string& why, const Position& position);
  std::uint32_t give(const GiveStep& step, std::string name, const Position& position,
                     bool of_proof);

  // --- executor_processes.cc
  Outcome carry_out(const StartStep& step);
  Outcome carry_out(const SignalStep& step);
  Outcome carry_out(const ExitStep& step);
  Outcome carry_out(const EndedStep& step);
  Outcome carry_out(const CallStep& step);
  Outcome carry_out(const ReturnsStep& step);
  Outcome carry_out(const PendingStep& step);
  Outcome carry_out(const AdvanceStep& step);
  // --- executor_clients.cc
  Outcome carry_out(const ConnectStep& step);
  Outcome carry_out(const SendStep& step);
  Outcome carry_out(const SendRestStep& step);
  Outcome carry_out(const CloseStep& step);
  Outcome carry_out(const ExpectEndStep& step);
  Outcome carry_out(const ExpectReplyStep& step);
  Outcome carry_out(const ExpectNothingStep& step);
  // --- executor_watch.cc
  Outcome carry_out(const WaitStep& step);
  Outcome carry_out(const GiveStep& step);
  Outcome carry_out(const ReleaseStep& step);
  Outcome carry_out(const OrderStep& step);
  Outcome carry_out(const CountStep& step);
  Outcome carry_out(const LoggedStep& step);
  // --- executor_files.cc
  Outcome carry_out(const FileStep& step);
  Outcome carry_out(const PlaceStep& step);
  Outcome carry_out(const CardStep& step);
  Outcome carry_out(const RepeatStep& step);

  // Waits with the current step's deadline; `what` completes "nobody can move any more: ".
  Outcome wait_for(std::function<bool()> met, std::function<std::string()> hopeless = nullptr,
                   int first_look_ms = 4);
  // The outcome of a wait that did not come to its goal; who waits for what goes into stacks.txt.
  Outcome of_wait(const Waited& waited);
  std::string tell_stuck();
  std::string stacks_of(const std::vector<Waiter>& waiters);
  std::int64_t limit_ns() const;

  // Why a wait for something of this process (empty: of any) is in vain; empty: it is not.
  std::string nobody_left(const std::string& process);
  // "worker died by SIGSEGV": the first of that name (empty: of all) that a signal ended; empty:
  // there is none.
  std::string first_death(const std::string& process);
  // The client, connected; null: `outcome` says why not.
  Client* connected(const std::string& name, Outcome* outcome);
  Outcome send_result(const std::string& client, int error, const std::vector<int>& allow);
  // Tells it to end, after a look at what it kept.
  bool tell_to_end(Instance& instance, const std::string& how, int code);
  // Waits for its end. A step with a name asserts how it ended, too; no_crash does so for all.
  Outcome wait_for_end(const Instance& instance);
  // After a shutdown that was done, and before the process is ended by an order or a signal.
  void look_at_what_it_kept(Instance& instance);
  tl::expected<std::string, std::string> expand(const std::string& path);

  const Drill& drill_;
  const RunOptions& options_;
  const RunFolder& folder_;
  Situation& situation_;
  Board& board_;
  Findings findings_;
  const Step* step_ = nullptr;  // the one being carried out
  std::vector<Given> given_;
  std::uint32_t pause_order_ = 0;  // 0: none, or it is over
  std::map<std::string, FileId> remembered_;
  std::set<std::string> unconnected_;  // clients whose connecting failed
  std::vector<std::string> placed_;
  std::int64_t step_number_ = 0;
};

}  // namespace kv::drill

#endif  // HARNESS_DRILL_EXECUTOR_H_
