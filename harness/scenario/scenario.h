// A scenario file, loaded: what its drills start, do, wait for and assert. Plain data, already
// checked by the loader (loader.h) against the engine's description; nothing here can be refused
// later. `scenarios/README.md` is the reference of the language itself.
//
// Threads, ownership: values.
#ifndef HARNESS_SCENARIO_SCENARIO_H_
#define HARNESS_SCENARIO_SCENARIO_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "harness/wire/wire.h"

namespace kv::drill {

struct Position {
  std::string file;
  int line = 0;    // from 1
  int column = 0;  // from 1
};

// A moment of a run: name[key]#hit@process/thread, every part but the name optional.
struct Address {
  std::string site;  // with ".done" for the end of a fault or step
  std::optional<std::int64_t> key;
  std::optional<std::uint64_t> hit;  // from 1, counted per thread
  std::string process;               // empty: any
  std::string thread;                // empty: any
};
std::string to_string(const Address& address);

struct Step;

// ---- processes
struct StartStep {
  std::string process;
};  // returns when the process said it is ready
struct SignalStep {
  std::string process;
  int signal = 0;
};
// Tells the process to end and, if `wait`, waits for it. how: return, exit, _exit, abort,
// quick_exit.
struct ExitStep {
  std::string process;
  std::string how = "return";
  int code = 0;
  bool wait = true;
};
// Waits for the end of a process that ends by itself, by a crash order or by a signal.
struct EndedStep {
  std::string process;
  std::optional<int> code;
  std::optional<int> signal;
};

// ---- clients: raw connections to a listener, played by the supervisor
struct ConnectStep {
  std::string client;
  std::string process;   // its announced socket ...
  std::string path;      // ... or this path (templates as in FileStep)
  bool refused = false;  // the connection must be refused
};
struct SendStep {
  std::string client;
  std::string bytes;                   // the whole frame, or whatever bytes the drill gave
  std::optional<std::uint64_t> first;  // only so many bytes now; the rest waits for SendRestStep
  std::vector<int> allow;              // errno values that are no failure
};
struct SendRestStep {
  std::string client;
  std::vector<int> allow;
  std::optional<std::uint64_t> first = {};  // only so many bytes of it; the rest waits for the next
};
struct CloseStep {
  std::string client;
  bool half = false;
};  // half: no more is sent
// Waits for the end of the connection (end of file, or reset: the peer dropped unread bytes).
struct ExpectEndStep {
  std::string client;
};
// Waits for one whole reply that has at least these fields.
struct ExpectReplyStep {
  std::string client;
  Value fields;
};
// The client has seen neither an end nor a byte by the time nobody can move (as PendingStep).
struct ExpectNothingStep {
  std::string client;
};

// ---- moments
// Returns at once when it is in the record already; `again`: waits for one more from now on.
struct WaitStep {
  Address at;
  bool again = false;
};
struct GiveStep {  // hold, fail, skip, crash, freeze, run
  enum class What { kHold, kFail, kSkip, kCrash, kFreeze, kRun };
  What what = What::kHold;
  Address at;
  std::string as;           // name, for ReleaseStep; default: the address as written
  std::int64_t code = 0;    // fail: the code; crash: the signal
  std::uint64_t times = 1;  // 0: always
  std::string command;      // run
  Value arguments;          // run
  bool may_miss = false;    // an order that never acts does not make the run void
};
struct ReleaseStep {
  std::string as;
};

// ---- calls
struct CallStep {
  std::string process, command, as;
  Value arguments;
};
// Waits for the call and compares its answer. `text`: the answer contains it (errors).
struct ReturnsStep {
  std::string as;
  std::optional<std::string> value;
  std::string text;
};
// The call has not returned, and will not by itself: waits until no process can move any more
// (threads.h), then asserts it.
struct PendingStep {
  std::string as;
};
struct AdvanceStep {
  std::int64_t ns = 0;
};  // moves the manual clock; all processes took it over

// ---- assertions
struct OrderStep {
  std::vector<Address> addresses;
};  // first occurrences, in this order
struct CountStep {
  Address of;
  std::optional<std::uint64_t> is, at_least, at_most;
};
struct LoggedStep {
  std::string process, text;
};  // waits for it
// path: text with {run}, {PROCESS.FACT} (an announced fact: {worker.socket}, {worker.socket_dir}).
struct FileStep {
  enum class State { kPresent, kAbsent, kSocket, kSame };
  std::string path;
  State state = State::kPresent;
  std::string as;  // kPresent, kSocket: remembers device and inode under this name; kSame: compares
};
struct PlaceStep {
  std::string path;
  std::string contents;
  bool socket = false;
  bool replace = false;
};
// What the card's ledger says of a living process now. Unset: not asserted.
struct CardStep {
  std::string process;
  std::optional<std::int64_t> bytes, handles, mappings, reservations;
};

struct RepeatStep {
  std::uint64_t times = 1;
  std::vector<Step> steps;
};

using Deed =
    std::variant<StartStep, SignalStep, ExitStep, EndedStep, ConnectStep, SendStep, SendRestStep,
                 CloseStep, ExpectEndStep, ExpectReplyStep, ExpectNothingStep, WaitStep, GiveStep,
                 ReleaseStep, CallStep, ReturnsStep, PendingStep, AdvanceStep, OrderStep, CountStep,
                 LoggedStep, FileStep, PlaceStep, CardStep, RepeatStep>;

struct Step {
  std::string id;    // the check's name; empty: the step's text serves
  std::string text;  // the step in one short line, for people: 'wait listener.read.body in worker'
  Position position;
  std::optional<std::int64_t> deadline_ns;  // else the drill's
  Deed deed;
  const std::string& check_name() const { return id.empty() ? text : id; }
};

struct ProcessSpec {
  std::string name;
  std::string role;
  std::int64_t rank = 0, stage = 0, device = 0;
  std::string ipc;                     // IPC name; empty: one for the whole run
  std::vector<std::string> arguments;  // added to the contract's
  std::map<std::string, std::string> environment;
  Position position;
};

struct Waiver {
  std::string check, reason;
};

// A proof: with these steps left out, exactly these checks fail.
struct Proof {
  std::vector<Address> skip;           // steps; a process may be named
  std::vector<std::string> fails;      // check names
  std::vector<std::string> not_under;  // "asan", "tsan"
  std::string reason;
  Position position;
};

// One run: the base of a file, or one of its arms, with everything filled in.
struct Drill {
  std::string scenario;  // the file's name field
  std::string arm;       // empty: the base
  Position position;
  std::vector<ProcessSpec> processes;
  std::vector<Step> steps;
  bool manual_clock = true;
  std::int64_t deadline_ns = 10'000'000'000;  // of each step; only a guard against hangs
  std::uint32_t events = 1 << 15;
  int devices = 1;
  std::int64_t device_bytes = std::int64_t{1} << 30;
  std::vector<Waiver> waived;
  std::vector<std::string> not_under;  // "asan", "tsan": the run is skipped there
  std::string not_under_reason;        // empty: none was given
  std::string expect_fail;             // reason; empty: a pass is expected
  std::vector<Proof> proofs;

  std::string full_name() const { return arm.empty() ? scenario : scenario + " / " + arm; }
};

struct Scenario {
  std::string file, name, about;
  std::vector<std::string> cases;
  std::vector<Drill> drills;  // the base first
};

// What an engine program says of itself (--describe): the loader's vocabulary.
struct Engine {
  std::string path;
  std::vector<std::string> roles, points, faults, steps, notes, commands;
};

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_SCENARIO_H_
