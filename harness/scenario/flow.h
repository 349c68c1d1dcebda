// Goes through the steps of a drill in their order and lets each refuse what can never be met
// where it stands: a wait in a process that was not started, the answer of a call that was taken
// already, a step on a closed client. It believes only what the drill itself says, so what is
// refused would always fail. What the members mean for a step, the step's own file says.
//
// Threads, ownership: one use per drill; the drafts and the world outlive it.
#ifndef HARNESS_SCENARIO_FLOW_H_
#define HARNESS_SCENARIO_FLOW_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/names.h"
#include "harness/scenario/scenario_fields.h"
#include "harness/scenario/step_reader.h"

namespace kv::drill {

// The board's places for processes: each start takes one for good, and the supervisor has one.
inline constexpr std::uint64_t kMostStarts = 255;

// So far may all advances of a drill move the clock: it holds 292 years, and engines add to it.
inline constexpr std::int64_t kYear = std::int64_t{8760} * 3600 * 1'000'000'000;
inline constexpr std::int64_t kFarthest = 100 * kYear;

class Flow {
 public:
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

  Flow(const World& world, Faults& faults) : world_(world), faults_(faults) {}

  void check(const std::vector<Draft>& drafts);

  // The ids of the steps, in order.
  const std::vector<std::string>& ids() const { return ids_; }
  // The processes that some step starts.
  const std::set<std::string>& started() const { return ever_started_; }

  // ---- for the step that is being checked
  int line() const { return now_->source->place.line; }
  // `key` if the step has it, else `otherwise`: where to report.
  std::string_view key_or(std::string_view key, std::string_view otherwise) const {
    return now_->source->find(key) != nullptr ? key : otherwise;
  }
  // Reports at the value of `key`, unless the step is broken.
  void refuse(std::string_view key, std::string message);

  ProcessState& process(const std::string& name) { return processes_[name]; }
  void start(const std::string& process);
  void advance(std::int64_t ns);  // of the manual clock
  // The process may live; if not, says so.
  bool alive(const std::string& process, std::string_view key);
  // It was told to end, and takes no orders any more; says so.
  bool told(const std::string& process, std::string_view key);
  // It was started at some time; if not, says so.
  bool was_started(const std::string& process, std::string_view key);
  // So for every process whose facts the path holds.
  void started_templates(const std::string& path, std::string_view key);
  // If the process has ended it must be started again, or the order is in vain.
  void order_given(const std::string& process, std::string_view key);

  // The client's state if it can be used; null: reported.
  ClientState* usable(const std::string& client);
  // Likewise, if it can still send.
  ClientState* sending(const std::string& client);
  // Likewise, if something may still come.
  ClientState* receiving(const std::string& client);

  void call_made(const std::string& as, std::string_view key);
  // The call, if its answer was not taken; null: reported.
  Named* call_out(const std::string& as, std::string_view key);

  std::map<std::string, ClientState> clients;
  std::map<std::string, Named> holds, marks;

 private:
  bool run(const std::vector<Draft>& drafts);
  bool run_body(const Draft& draft);
  void collect_ids(const std::vector<Draft>& drafts);
  void report_idle_orders();

  const World& world_;
  Faults& faults_;
  const Draft* now_ = nullptr;
  bool second_round_ = false;  // of a step that repeats others
  std::map<std::string, ProcessState> processes_;
  std::map<std::string, Named> calls_;
  struct Idle {  // an order for a process that ended, until it is started again
    std::string process;
    Place place;
    int line;
  };
  std::vector<Idle> idle_;
  std::vector<std::string> ids_;
  std::set<std::string> ever_started_;
  std::uint64_t starts_ = 0;
  std::int64_t advanced_ns_ = 0;
};

// " (nearest: word)" for a name that the drill gave to something else; empty: none is near.
template <typename Map>
std::string near_key(const std::string& word, const Map& map) {
  std::vector<std::string> words;
  for (const auto& [key, value] : map) words.push_back(key);
  const std::string near = nearest(word, words);
  return near.empty() || near == word ? std::string() : " (nearest: " + near + ")";
}

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_FLOW_H_
