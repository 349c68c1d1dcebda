// Where a drill stands: its processes, clients and calls, and what happened so far; and the one
// loop in which the supervisor waits for something of it. Nothing here decides what a step means.
//
// A wait ends when its goal is met, when it can never be met (exactly known, not by time), or at
// its deadline, which is only a guard.
//
// Threads: the supervisor's single thread. Ownership: owns children's handles and clients' sockets;
// the board must outlive it.
#ifndef HARNESS_DRILL_EXECUTOR_SITUATION_H_
#define HARNESS_DRILL_EXECUTOR_SITUATION_H_

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/board/board.h"
#include "harness/drill/client.h"
#include "harness/drill/executor_moments.h"
#include "harness/process/leftovers.h"
#include "harness/process/output.h"
#include "harness/process/process.h"
#include "harness/process/threads.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/checks.h"

namespace kv::drill {

// CLOCK_MONOTONIC, as the events have it.
std::int64_t now_ns();

// The command that gives everything back when it answers "done".
inline constexpr std::string_view kShutdownCommand = "shutdown";

// What a process has of the system, by what it is: one that took the place of another shows.
struct Held {
  std::vector<OpenDescriptor> descriptors;
  std::vector<LivingThread> threads;
};
Held held_by(pid_t pid);

// One process that was started; a process that is started again is a further one.
struct Instance {
  Instance(const ProcessSpec& its, Child started, int which)
      : spec(&its), child(std::move(started)), time(which) {}
  const std::string& name() const { return spec->name; }
  bool lives() const { return !end; }

  const ProcessSpec* spec;
  Child child;
  int time;  // counts the starts of this name from 1
  std::string stderr_path;
  Output out, err;
  std::optional<std::uint16_t> index;  // in Board::processes(), once it has registered
  bool ready = false;
  bool meant_to_fail = false;                // its start is, instead of becoming ready
  std::map<std::string, std::string> facts;  // announced; the newest of a name
  std::int64_t clock = 0;                    // newest time of a moved clock that it has taken over
  std::optional<End> end;
  std::uint64_t ended_at = 0;  // the sequence then

  // What the drill had to do with its end.
  Expected expected;
  bool end_said = false;  // `expected` is what a step says of it
  bool asked = false;     // told to end, or its end was waited for
  bool gentle = false;    // told to end in an orderly way
  // A shutdown has said `done`, and nothing was brought up again since.
  bool shut_down = false;
  // What it held when it said that it is ready; looked at if the drill judges a shutdown of it.
  bool to_be_looked_at = false;
  std::optional<Held> at_ready;
  std::vector<std::string> descriptors_left, threads_left;
};

// Whether it must have given back everything when it ended: its end was orderly, or a shutdown had
// said that it is done, however it ended then.
bool owes_everything(const Instance& instance);

struct ScriptedCall {
  std::string name, process, command;
  bool delivered = false, begun = false, returned = false, failed = false;
  std::string answer;
};

struct Goal {
  std::function<bool()> met;  // asked whenever something has happened
  // Why it cannot be met any more, as far as the drill can tell by itself; empty: it may still be.
  std::function<std::string()> hopeless;
  std::int64_t limit_ns = 0;
  int first_look_ms = 4;  // of quiet, before the threads are looked at
};

enum class WaitEnd {
  kMet,
  kHopeless,  // `why` says it
  kStuck,     // nobody can move, and nothing of the drill's is on its way
  kDeadline,
  kOverflow,     // the board is full, `why` says of what: nothing can be judged any more
  kInterrupted,  // the runner is gone, or a signal asks for the end
};
struct Waited {
  WaitEnd how = WaitEnd::kMet;
  std::string why;
  bool blind = false;  // the kernel did not show whether somebody can move
  // Who waited with a limit of time while nobody else could move: all that happened then is due to
  // that limit (or to the outside). Empty: it was never so.
  std::string limit;
};

class Situation {
 public:
  // `lifeline` and `signals` (a signalfd) may be -1. With a real driver its own threads, which turn
  // round by the clock for ever, do not count: what only they could wake, by a host function behind
  // work in flight, is not seen.
  Situation(Board& board, int lifeline, int signals, bool real_driver = false);
  Situation(const Situation&) = delete;
  Situation& operator=(const Situation&) = delete;

  Board& board() { return board_; }
  const Moments& moments() const { return moments_; }

  Instance& add(Instance instance);
  std::deque<Instance>& instances() { return instances_; }
  Instance* find(std::string_view process);  // the newest of that name; null: never started
  int starts_of(std::string_view process) const;

  std::uint32_t add_call(ScriptedCall call);       // its id on the board
  ScriptedCall* find_call(std::string_view name);  // the newest of that name

  std::map<std::string, Client>& clients() { return clients_; }
  // The errno value of what could not be sent to this client's peer later on; 0: none.
  int send_error(const std::string& client) const;

  // Takes in what has happened so far: ends of processes, then events. Never blocks.
  void take_in();
  Waited wait(const Goal& goal);

  // Whether the drill shall end now. Looks, so that steps that never wait notice it too.
  bool interrupted();
  // What becomes readable then, for whoever sleeps elsewhere; interrupted() says whether it did.
  // Who sleeps so has to let the processes write on, too: take_outputs() whenever it wakes.
  std::vector<pollfd> interruptions() const;
  void take_outputs();
  // Called by wait() for all that has happened, before anything is concluded from it; false from it
  // interrupts the drill.
  void at_every_look(std::function<bool()> look) { look_ = std::move(look); }
  // Living processes of the drill, the forked ones too, without the threads that do not count.
  std::vector<Watched> watched() const;

 private:
  std::vector<pollfd> outputs() const;
  std::string who_is_timed(const std::vector<Watched>& processes) const;
  void take_events();
  void take_event(const Event& event);
  Instance* by_index(std::uint16_t index);
  // Sleeps until something happens or `ms` have passed; false: the time has passed.
  bool sleep(int ms);
  void serve_clients(const std::vector<std::pair<std::string, short>>& ready);
  void read_signals();

  Board& board_;
  const int lifeline_, signals_;
  const bool real_driver_;
  Moments moments_;
  std::deque<Instance> instances_;
  std::deque<ScriptedCall> calls_;  // id - 1
  std::map<std::string, Client> clients_;
  std::map<std::string, int> send_errors_;
  std::uint64_t next_ = 0;  // sequence of the next event to take in
  bool interrupted_ = false;
  std::function<bool()> look_;
};

}  // namespace kv::drill

#endif  // HARNESS_DRILL_EXECUTOR_SITUATION_H_
