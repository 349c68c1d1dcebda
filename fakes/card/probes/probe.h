// A probe asks a driver questions in a process of its own and prints each answer as a fact: one
// JSON object a line, in the form in which the answers of a real driver are recorded.
//
// Threads: a probe's own. Ownership: nothing passes.
#ifndef FAKES_CARD_PROBES_PROBE_H_
#define FAKES_CARD_PROBES_PROBE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "fakes/card/probes/driver.h"

namespace kv::card {

// Prints facts at once, unbuffered: the process may die in the next call.
class Facts {
 public:
  explicit Facts(const Driver& driver) : driver_(driver) {}
  void status(const std::string& fact, CUresult code) const;
  void number(const std::string& fact, std::int64_t value) const;
  void truth(const std::string& fact, bool value) const;
  void text(const std::string& fact, const std::string& value) const;

 private:
  const Driver& driver_;
};

struct Probe {
  // Facts that it prints begin with it, or else say so in full.
  const char* name;
  void (*run)(const Driver& driver, const Facts& facts);
  enum class Needs {
    kNothing,
    kHeldStreams,  // the card's stand-in for kernels in flight
    kTwoDevices,
  } needs = Needs::kNothing;
  // The end of its process is a fact too: kSignal when a signal ends it, as NAME; kProcess always,
  // as NAME.process.
  enum class End { kSilent, kSignal, kProcess } end = End::kSilent;
};

// All probes, ended by a null name; each file of this folder gives some.
extern const Probe kPageProbes[];
extern const Probe kSharingProbes[];
extern const Probe kWorkProbes[];
extern const Probe kExitProbes[];

// A second process of a probe: the same program in a role, at the other end of a socket.
struct Partner {
  pid_t pid = -1;
  int socket = -1;

  std::string receive(int* fd = nullptr) const;  // a datagram; a descriptor may come with it
  void send(const std::string& bytes, int fd = -1) const;
  // Tells it to do something and waits for its answer.
  std::string ask(const std::string& what) const;
  void kill() const;  // SIGKILL, and reaped
};
Partner start_partner(const char* role);
// Null: no such role. `me` has only its socket set.
using Role = void (*)(const Driver& driver, const Partner& me);
Role role_named(const std::string& name);

}  // namespace kv::card

#endif  // FAKES_CARD_PROBES_PROBE_H_
