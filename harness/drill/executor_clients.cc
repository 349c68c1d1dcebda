// Steps of clients: raw connections to a listener, played by the supervisor.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "harness/drill/executor.h"
#include "harness/wire/wire.h"

namespace kv::drill {
namespace {

using How = Outcome::How;

constexpr const char* kSocketFact = "socket";

std::string error_name(int error) {
  const char* name = ::strerrorname_np(error);
  return name == nullptr ? fmt::format("error {}", error)
                         : fmt::format("{} ({})", name, std::strerror(error));
}

// "ended", "was reset", "lives": of a connection, for people.
std::string_view state_of(const Client& client) {
  if (!client.ended()) return "lives";
  return client.reset() ? "was reset" : "has ended";
}

}  // namespace

Outcome Executor::carry_out(const ConnectStep& step) {
  situation_.take_in();
  std::string path;
  if (!step.path.empty()) {
    auto expanded = expand(step.path);
    if (!expanded) {
      unconnected_.insert(step.client);
      return {How::kWrong, expanded.error()};
    }
    path = *std::move(expanded);
  } else {
    const Instance* instance = situation_.find(step.process);
    const auto fact = instance == nullptr ? std::map<std::string, std::string>::const_iterator{}
                                          : instance->facts.find(kSocketFact);
    if (instance == nullptr || fact == instance->facts.end()) {
      unconnected_.insert(step.client);
      return {How::kWrong, fmt::format("{} has announced no socket", step.process)};
    }
    path = fact->second;
  }
  Client& client = situation_.clients()[step.client];
  client = Client();
  const int error = client.connect(path);
  if (step.refused) {
    client = Client();
    if (error == ECONNREFUSED || error == ENOENT) return {};
    return {How::kWrong, error == 0 ? fmt::format("{} was accepted at {}", step.client, path)
                                    : fmt::format("{}: {}", path, error_name(error))};
  }
  if (error == 0) {
    unconnected_.erase(step.client);
    return {};
  }
  unconnected_.insert(step.client);
  const char* const more =
      error == EAGAIN ? ": its queue is full of connections that nobody has accepted" : "";
  return {How::kWrong, fmt::format("{}: {}{}", path, error_name(error), more)};
}

Client* Executor::connected(const std::string& name, Outcome* outcome) {
  const auto found = situation_.clients().find(name);
  if (found != situation_.clients().end() && found->second.open()) return &found->second;
  *outcome = unconnected_.count(name) != 0
                 ? Outcome{How::kNotJudged, {}}
                 : Outcome{How::kWrong, fmt::format("{} is not connected", name)};
  return nullptr;
}

// What is not taken at once is sent while the drill waits; a peer that never takes it is no failure
// of the step.
Outcome Executor::send_result(const std::string& name, int error, const std::vector<int>& allow) {
  if (error == EAGAIN) {
    Client& client = situation_.clients()[name];
    const Waited waited =
        situation_.wait({[&client] { return !client.wants_write(); }, nullptr, limit_ns(), 4});
    if (waited.how == WaitEnd::kInterrupted) return {How::kInterrupted, {}};
    error = situation_.send_error(name);
  }
  if (error == 0 || std::find(allow.begin(), allow.end(), error) != allow.end()) return {};
  return {How::kWrong, fmt::format("{} cannot send: {}", name, error_name(error))};
}

Outcome Executor::carry_out(const SendStep& step) {
  Outcome outcome;
  Client* client = connected(step.client, &outcome);
  if (client == nullptr) return outcome;
  std::optional<std::size_t> first;
  if (step.first) first = static_cast<std::size_t>(*step.first);
  return send_result(step.client, client->send(step.bytes, first), step.allow);
}

Outcome Executor::carry_out(const SendRestStep& step) {
  Outcome outcome;
  Client* client = connected(step.client, &outcome);
  if (client == nullptr) return outcome;
  return send_result(step.client, client->release_rest(step.first), step.allow);
}

Outcome Executor::carry_out(const CloseStep& step) {
  Outcome outcome;
  Client* client = connected(step.client, &outcome);
  if (client == nullptr) return outcome;
  client->close(step.half);
  return {};
}

Outcome Executor::carry_out(const ExpectEndStep& step) {
  Outcome outcome;
  Client* client = connected(step.client, &outcome);
  if (client == nullptr) return outcome;
  outcome = wait_for([client] { return client->ended(); });
  if (outcome.how == How::kHung) {
    outcome.why = fmt::format("{} saw no end of its connection ({} bytes came), {}", step.client,
                              client->received().size(), outcome.why);
  }
  return outcome;
}

Outcome Executor::carry_out(const ExpectReplyStep& step) {
  Outcome outcome;
  Client* client = connected(step.client, &outcome);
  if (client == nullptr) return outcome;
  std::optional<std::string> body;
  outcome = wait_for([client, &body] {
    if (!body) body = client->take_frame();
    return body.has_value() || client->ended();
  });
  if (outcome.how != How::kDone) {
    outcome.why = fmt::format("{} got no whole reply ({} bytes came), {}", step.client,
                              client->received().size(), outcome.why);
    return outcome;
  }
  if (!body) {
    return {How::kWrong, fmt::format("{} got no whole reply ({} bytes came): the connection {}",
                                     step.client, client->received().size(), state_of(*client))};
  }
  const auto reply = unpickle(*body);
  if (!reply) {
    return {How::kWrong,
            fmt::format("{} got a reply that cannot be read: {}", step.client, reply.error())};
  }
  std::string why;
  if (!matches(step.fields, *reply, &why)) {
    return {How::kWrong, fmt::format("{} got {}: {}", step.client, to_json(*reply), why)};
  }
  return {};
}

Outcome Executor::carry_out(const ExpectNothingStep& step) {
  Outcome outcome;
  Client* client = connected(step.client, &outcome);
  if (client == nullptr) return outcome;
  const Waited waited =
      situation_.wait({[client] { return client->ended() || !client->received().empty(); }, nullptr,
                       limit_ns(), 1});
  switch (waited.how) {
    case WaitEnd::kStuck:
      return {};
    case WaitEnd::kMet:
      return {How::kWrong, fmt::format("{} got {} bytes and its connection {}", step.client,
                                       client->received().size(), state_of(*client))};
    case WaitEnd::kDeadline:
      return {How::kVoid, fmt::format("whether {} can still get something could not be told within "
                                      "{:.3g} s: somebody kept moving",
                                      step.client, static_cast<double>(limit_ns()) / 1e9)};
    default:
      return of_wait(waited);
  }
}

}  // namespace kv::drill
