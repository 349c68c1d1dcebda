// client, expect: the end of the connection, a reply, or nothing.
#include <utility>

#include "harness/steps/client.h"
#include "harness/wire/wire.h"

namespace kv::drill {
namespace {

// "ended", "was reset", "lives": of a connection, for people.
std::string_view state_of(const Client& client) {
  if (!client.ended()) return "lives";
  return client.reset() ? "was reset" : "has ended";
}

// End of file, or reset: the peer dropped unread bytes.
struct ExpectEndStep {
  std::string client;

  std::string text() const { return client + " sees the end of the connection"; }
  bool only_looks() const { return true; }

  void check(Flow& flow) const {
    auto* state = flow.receiving(client);
    if (state == nullptr || state->state != Flow::Client::kOpen) return;
    state->state = Flow::Client::kEnd;
    state->line = flow.line();
  }

  Outcome carry_out(Executor& executor) const {
    Outcome outcome;
    const Client* connection = executor.connected(client, &outcome);
    if (connection == nullptr) return outcome;
    outcome = executor.wait_for([connection] { return connection->ended(); });
    if (outcome.how == Outcome::How::kHung) {
      outcome.why = fmt::format("{} saw no end of its connection ({} bytes came), {}", client,
                                connection->received().size(), outcome.why);
    }
    return outcome;
  }
};

// Neither an end nor a byte by the time nobody can move.
struct ExpectNothingStep {
  std::string client;

  std::string text() const { return client + " sees nothing"; }
  bool only_looks() const { return true; }
  void check(Flow& flow) const { flow.receiving(client); }

  Outcome carry_out(Executor& executor) const {
    Outcome outcome;
    const Client* connection = executor.connected(client, &outcome);
    if (connection == nullptr) return outcome;
    const auto got = [connection] {
      return connection->ended() || !connection->received().empty();
    };
    outcome = executor.settle(client + " can still get something", got);
    if (outcome.how != Outcome::How::kDone || !got()) return outcome;
    return wrong(fmt::format("{} got {} bytes and its connection {}", client,
                             connection->received().size(), state_of(*connection)));
  }
};

}  // namespace

std::string ExpectReplyStep::text() const {
  return fmt::format("{} gets {}", client, to_json(fields));
}

void ExpectReplyStep::check(Flow& flow) const {
  flow.receiving(client);
}

Outcome ExpectReplyStep::carry_out(Executor& executor) const {
  Outcome outcome;
  Client* connection = executor.connected(client, &outcome);
  if (connection == nullptr) return outcome;
  std::optional<std::string> body;
  outcome = executor.wait_for([connection, &body] {
    if (!body) body = connection->take_frame();
    return body.has_value() || connection->ended();
  });
  const std::string none =
      fmt::format("{} got no whole reply ({} bytes came)", client, connection->received().size());
  if (outcome.how != Outcome::How::kDone) {
    outcome.why = none + ", " + outcome.why;
    return outcome;
  }
  if (!body) return wrong(fmt::format("{}: the connection {}", none, state_of(*connection)));
  const auto reply = unpickle(*body);
  if (!reply) {
    return wrong(fmt::format("{} got a reply that cannot be read: {}", client, reply.error()));
  }
  std::string why;
  if (matches(fields, *reply, &why)) return {};
  return wrong(fmt::format("{} got {}: {}", client, to_json(*reply), why));
}

Deeds read_expect(StepReader& reader, const std::string& client) {
  const Node* what = reader.fields.find("expect");
  const bool is_text = what->is(Node::Kind::kText);
  if (what->is(Node::Kind::kTable)) {
    return {{ExpectReplyStep{client, read_value(*what, reader.faults)}}};
  }
  if (is_text && what->text == "eof") return {{ExpectEndStep{client}}};
  if (is_text && what->text == "nothing") return {{ExpectNothingStep{client}}};
  const std::string near = is_text ? nearest(what->text, {"eof", "nothing"}) : "";
  reader.faults.add(
      *what, fmt::format("expect = {}, expected \"eof\", \"nothing\" or the "
                         "fields of a reply in braces{}",
                         shown(*what), near.empty() ? "" : fmt::format(" (nearest: {})", near)));
  return {};
}

}  // namespace kv::drill
