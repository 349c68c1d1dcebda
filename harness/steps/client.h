// The verbs of `client`: a raw connection to a listener, played by the supervisor. A verb is one
// file, client_*.cc, and one line in the table of client.cc.
//
// Threads, ownership: values.
#ifndef HARNESS_STEPS_CLIENT_H_
#define HARNESS_STEPS_CLIENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/steps/parts.h"

namespace kv::drill {

using ClientDeeds = Deeds (*)(StepReader& reader, const std::string& client);

Deeds read_connect(StepReader& reader, const std::string& client);
Deeds read_send(StepReader& reader, const std::string& client);
Deeds read_send_rest(StepReader& reader, const std::string& client);
Deeds read_request(StepReader& reader, const std::string& client);
Deeds read_expect(StepReader& reader, const std::string& client);
Deeds read_close(StepReader& reader, const std::string& client);
Deeds read_half_close(StepReader& reader, const std::string& client);

struct SendStep {
  std::string client;
  std::string bytes;                   // the whole frame, or whatever bytes the drill gave
  std::optional<std::uint64_t> first;  // only so many bytes now; the rest waits for send_rest
  std::vector<int> allow;              // errno values that are no failure

  std::string text() const;
  bool only_looks() const { return true; }
  void check(Flow& flow) const;
  Outcome carry_out(Executor& executor) const;
};

// Waits for one whole reply that has at least these fields.
struct ExpectReplyStep {
  std::string client;
  Value fields;

  std::string text() const;
  bool only_looks() const { return true; }
  void check(Flow& flow) const;
  Outcome carry_out(Executor& executor) const;
};

// A flag that is a step of its own: true, or nothing.
void read_flag(StepReader& reader, const std::string& key);
// "EPIPE (Broken pipe)"
std::string error_name(int error);

}  // namespace kv::drill

#endif  // HARNESS_STEPS_CLIENT_H_
