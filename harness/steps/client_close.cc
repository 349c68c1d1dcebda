// client, close, half_close: the end of a connection, or of its sending half.
#include "harness/steps/client.h"

namespace kv::drill {
namespace {

struct CloseStep {
  std::string client;
  bool half = false;  // no more is sent

  std::string text() const { return client + (half ? " closes its sending half" : " closes"); }

  void check(Flow& flow) const {
    auto* state = flow.usable(client);
    if (state == nullptr) return;
    if (half && state->half_closed) {
      flow.refuse("half_close", fmt::format("client \"{}\" closed its sending half in line {} "
                                            "already, expected one such step",
                                            client, state->line));
    }
    if (half) {
      state->half_closed = true;
    } else {
      state->state = Flow::Client::kGone;
    }
    state->line = flow.line();
  }

  Outcome carry_out(Executor& executor) const {
    Outcome outcome;
    Client* connection = executor.connected(client, &outcome);
    if (connection != nullptr) connection->close(half);
    return outcome;
  }
};

}  // namespace

Deeds read_close(StepReader& reader, const std::string& client) {
  read_flag(reader, "close");
  return {{CloseStep{client, false}}};
}

Deeds read_half_close(StepReader& reader, const std::string& client) {
  read_flag(reader, "half_close");
  return {{CloseStep{client, true}}};
}

}  // namespace kv::drill
