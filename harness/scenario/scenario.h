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
#include <vector>

#include "harness/scenario/step.h"

namespace kv::drill {

// A moment of a run: name[key]#hit@process/thread, every part but the name optional.
struct Address {
  std::string site;  // with ".done" for the end of a fault or step
  std::optional<std::int64_t> key;
  std::optional<std::uint64_t> hit;  // from 1, counted per thread
  std::string process;               // empty: any
  std::string thread;                // empty: any
};
std::string to_string(const Address& address);

struct ProcessSpec {
  std::string name;
  std::string role;
  std::int64_t rank = 0, stage = 0, device = 0;
  std::string ipc;                     // IPC name; empty: one for the whole run
  std::vector<std::string> arguments;  // added to the contract's
  std::map<std::string, std::string> environment;
  std::map<int, std::uint64_t> limits;  // RLIMIT_NOFILE, ...: what it may have at most
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
  std::optional<std::int64_t> small_root;  // bytes of the file systems that hold the roots
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
