// client, send, send_bytes, send_rest, request: bytes to the listener.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <tuple>
#include <utility>
#include <variant>

#include "harness/scenario/units.h"
#include "harness/steps/client.h"
#include "harness/wire/wire.h"

namespace kv::drill {
namespace {

// What is not taken at once is sent while the drill waits; a peer that never takes it is no failure
// of the step.
Outcome sent(Executor& executor, const std::string& name, int error,
             const std::vector<int>& allow) {
  Situation& situation = executor.situation();
  if (error == EAGAIN) {
    Client& client = situation.clients()[name];
    const Waited waited = situation.wait(
        {[&client] { return !client.wants_write(); }, nullptr, executor.limit_ns(), 4});
    if (waited.how == WaitEnd::kInterrupted) return {Outcome::How::kInterrupted, {}};
    error = situation.send_error(name);
  }
  if (error == 0 || std::find(allow.begin(), allow.end(), error) != allow.end()) return {};
  return wrong(fmt::format("{} cannot send: {}", name, error_name(error)));
}

struct SendRestStep {
  std::string client;
  std::vector<int> allow;
  std::optional<std::uint64_t> first = {};  // only so many bytes of it; the rest waits for the next

  std::string text() const {
    return client +
           (first ? fmt::format(" sends {} bytes of the rest", *first) : " sends the rest");
  }
  bool only_looks() const { return true; }

  void check(Flow& flow) const {
    auto* state = flow.sending(client);
    if (state == nullptr) return;
    if (!state->half_closed && !state->rest) {
      flow.refuse("send_rest", fmt::format("client \"{}\" holds nothing back, expected a send with "
                                           "first before",
                                           client));
    }
    state->rest = first.has_value();
  }

  Outcome carry_out(Executor& executor) const {
    Outcome outcome;
    Client* connection = executor.connected(client, &outcome);
    if (connection == nullptr) return outcome;
    return sent(executor, client, connection->release_rest(first), allow);
  }
};

// "map_to_kv_tensors" of a request, for the step's text.
std::string request_name(const Value& request) {
  const Value* command = request.find("cmd");
  const auto* text = command == nullptr ? nullptr : std::get_if<std::string>(&command->data);
  return text == nullptr ? std::string("a request") : *text;
}

// What is sent, and its name for people.
std::pair<std::string, std::string> read_frame(StepReader& reader, const Node* table) {
  if (table == nullptr) return {};
  const Value request = read_value(*table, reader.faults);
  return {frame(pickle(request)), request_name(request)};
}

std::pair<std::string, std::string> read_bytes_of(StepReader& reader) {
  const auto hex = reader.fields.text("send_bytes");
  if (!hex) return {};
  auto bytes = parse_hex(*hex);
  if (bytes && bytes->empty()) bytes = tl::unexpected(std::string("no byte, expected some"));
  if (bytes) return {*bytes, fmt::format("{} bytes", bytes->size())};
  reader.faults.add(*reader.fields.find("send_bytes"),
                    fmt::format("send_bytes: {}", bytes.error()));
  return {};
}

}  // namespace

std::string SendStep::text() const {
  return fmt::format("{} sends {} bytes", client, bytes.size());
}

void SendStep::check(Flow& flow) const {
  auto* state = flow.sending(client);
  if (state == nullptr) return;
  if (!state->half_closed && state->rest) {
    flow.refuse("client", fmt::format("client \"{}\" holds back the rest of what it sent in line "
                                      "{}, expected send_rest before",
                                      client, state->line));
  }
  state->rest = first.has_value();
  state->line = flow.line();
}

Outcome SendStep::carry_out(Executor& executor) const {
  Outcome outcome;
  Client* connection = executor.connected(client, &outcome);
  if (connection == nullptr) return outcome;
  return sent(executor, client, connection->send(bytes, first), allow);
}

Deeds read_send(StepReader& reader, const std::string& client) {
  SendStep step;
  step.client = client;
  std::string what;
  std::tie(step.bytes, what) = reader.fields.node().find("send") != nullptr
                                   ? read_frame(reader, reader.fields.table("send"))
                                   : read_bytes_of(reader);
  step.first = reader.amount("first");
  if (step.first && !step.bytes.empty() && *step.first > step.bytes.size()) {
    reader.faults.add(*reader.fields.find("first"),
                      fmt::format("first = {}, expected at most {}, the length of what is sent",
                                  *step.first, step.bytes.size()));
  }
  step.allow = reader.allowed_errors();
  std::string text = fmt::format("{} sends {}", client, what);
  if (step.first) text += fmt::format(", the first {} of {} bytes", *step.first, step.bytes.size());
  return {{std::move(step), std::move(text)}};
}

Deeds read_send_rest(StepReader& reader, const std::string& client) {
  read_flag(reader, "send_rest");
  SendRestStep step{client, reader.allowed_errors(), std::nullopt};
  if (const auto first = reader.fields.integer("first", 1, INT64_MAX)) {
    step.first = static_cast<std::uint64_t>(*first);
  }
  return {{std::move(step)}};
}

Deeds read_request(StepReader& reader, const std::string& client) {
  const Node* request = reader.fields.table("request");
  reader.fields.require("reply", "what the answer holds, as in {status = \"success\"}");
  const Node* reply = reader.fields.table("reply");
  if (request == nullptr || reply == nullptr) return {};
  SendStep step;
  step.client = client;
  std::string what;
  std::tie(step.bytes, what) = read_frame(reader, request);
  return {{std::move(step), fmt::format("{} sends {}", client, what)},
          {ExpectReplyStep{client, read_value(*reply, reader.faults)}}};
}

}  // namespace kv::drill
