// Reads the steps of a drill in their order and refuses what can never be met: a wait in a process
// that was not started, the answer of a call that was taken already, a step on a closed client.
// It believes only what the drill itself says, so what it refuses would always fail.
//
// Threads, ownership: one use per drill; the drafts and the world outlive it.
#ifndef HARNESS_STEPS_STEPS_FLOW_H_
#define HARNESS_STEPS_STEPS_FLOW_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/scenario_fields.h"
#include "harness/steps/steps.h"

namespace kv::drill {

class Flow {
 public:
  Flow(const World& world, Faults& faults) : world_(world), faults_(faults) {}

  void check(const std::vector<Draft>& drafts);

  // The ids of the steps, in order.
  const std::vector<std::string>& ids() const { return ids_; }
  // The processes that some step starts.
  const std::set<std::string>& started() const { return ever_started_; }

 private:
  // kTold: to end, by a step that did not wait for it.
  enum class Process : std::uint8_t { kNew, kAlive, kTold, kKilled, kEnded };
  struct ProcessState {
    Process state = Process::kNew;
    int line = 0;  // of the step that brought it there
  };
  enum class Client : std::uint8_t { kOpen, kEnd, kRefused, kGone };
  struct ClientState {
    Client state = Client::kOpen;
    bool half_closed = false;
    bool rest = false;  // bytes are held back
    int line = 0;
  };
  struct Named {  // a call or a hold
    bool active = true;
    int line = 0;
  };

  bool run(const std::vector<Draft>& drafts);
  void one(const Draft& draft);
  void collect_ids(const std::vector<Draft>& drafts);

  void on(const StartStep& step);
  void on(const SignalStep& step);
  void on(const ExitStep& step);
  void on(const EndedStep& step);
  void on(const ConnectStep& step);
  void on(const SendStep& step);
  void on(const SendRestStep& step);
  void on(const CloseStep& step);
  void on(const ExpectEndStep& step);
  void on(const ExpectReplyStep& step);
  void on(const ExpectNothingStep& step);
  void on(const WaitStep& step);
  void on(const GiveStep& step);
  void on(const ReleaseStep& step);
  void on(const CallStep& step);
  void on(const ReturnsStep& step);
  void on(const PendingStep& step);
  void on(const AdvanceStep&) {}
  void on(const OrderStep& step);
  void on(const CountStep& step);
  void on(const LoggedStep& step);
  void on(const FileStep& step);
  void on(const PlaceStep& step);
  void on(const CardStep& step);
  void on(const RepeatStep& step);

  // Reports at the value of `key` of the present step, unless the step is broken.
  void refuse(std::string_view key, std::string message);
  // The process may live; if not, says so.
  bool alive(const std::string& process, std::string_view key);
  // It was told to end, and takes no orders any more; says so.
  bool told(const std::string& process, std::string_view key);
  // It was started at some time; if not, says so.
  bool was_started(const std::string& process, std::string_view key);
  void started_templates(const std::string& path, std::string_view key);
  // The client's state if it can be used; null: reported.
  ClientState* usable(const std::string& client);
  void expect_something(const std::string& client);
  void call_made(const std::string& as, std::string_view key);
  Named* call_out(const std::string& as, std::string_view key);
  void report_idle_orders();

  const World& world_;
  Faults& faults_;
  const Draft* now_ = nullptr;
  bool second_round_ = false;  // of a repeat
  std::map<std::string, ProcessState> processes_;
  std::map<std::string, ClientState> clients_;
  std::map<std::string, Named> calls_, holds_, marks_;
  struct Idle {  // an order for a process that ended, until it is started again
    std::string process;
    Place place;
    int line;
  };
  std::vector<Idle> idle_;
  std::vector<std::string> ids_;
  std::set<std::string> ever_started_;
};

}  // namespace kv::drill

#endif  // HARNESS_STEPS_STEPS_FLOW_H_
