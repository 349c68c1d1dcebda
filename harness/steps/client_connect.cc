// client, connect: to a process, or to a path; `refused`: it must be, once nobody can move.
#include <cerrno>
#include <utility>

#include "harness/steps/client.h"

namespace kv::drill {
namespace {

constexpr const char* kSocketFact = "socket";

struct ConnectStep {
  std::string client;
  std::string process;   // its announced socket ...
  std::string path;      // ... or this path, with {run} and {PROCESS.FACT}
  bool refused = false;  // the connection must be refused

  std::string text() const {
    return fmt::format("{} connects to {}{}", client, process.empty() ? path : process,
                       refused ? " and is refused" : "");
  }
  bool only_looks() const { return refused; }

  void check(Flow& flow) const {
    using Client = Flow::Client;
    const auto known = flow.clients.find(client);
    if (known != flow.clients.end() &&
        (known->second.state == Client::kOpen || known->second.state == Client::kEnd)) {
      flow.refuse("client", fmt::format("client \"{}\" was connected in line {} and not closed, "
                                        "expected close before, or another name",
                                        client, known->second.line));
    }
    if (process.empty()) {
      flow.started_templates(path, "connect");
    } else if (refused) {  // a process that is gone can still refuse
      flow.was_started(process, "connect");
    } else {
      flow.alive(process, "connect");
    }
    flow.clients[client] = {refused ? Client::kRefused : Client::kOpen, false, false, flow.line()};
  }

  tl::expected<std::string, std::string> where(Executor& executor) const {
    if (!path.empty()) return executor.expand(path);
    const Instance* instance = executor.situation().find(process);
    if (instance != nullptr) {
      const auto fact = instance->facts.find(kSocketFact);
      if (fact != instance->facts.end()) return fact->second;
    }
    return tl::unexpected(process + " has announced no socket");
  }

  Outcome carry_out(Executor& executor) const {
    executor.situation().take_in();
    if (refused) {
      Outcome settled = executor.settle(client + " is refused");
      if (settled.how != Outcome::How::kDone) return settled;
    }
    const auto socket = where(executor);
    if (!socket) {
      executor.unconnected().insert(client);
      return wrong(socket.error());
    }
    Client& connection = executor.situation().clients()[client];
    connection = Client();
    connection.tell_to([&executor, name = client](std::string_view what) {
      executor.board().record("client", 0, 0, fmt::format("{} {}", name, what));
    });
    const int error = connection.connect(*socket);
    if (refused) {
      connection = Client();
      if (error == ECONNREFUSED || error == ENOENT) return {};
      return wrong(error == 0 ? fmt::format("{} was accepted at {}", client, *socket)
                              : fmt::format("{}: {}", *socket, error_name(error)));
    }
    if (error == 0) {
      executor.unconnected().erase(client);
      return {};
    }
    executor.unconnected().insert(client);
    const char* const more =
        error == EAGAIN ? ": its queue is full of connections that nobody has accepted" : "";
    return wrong(fmt::format("{}: {}{}", *socket, error_name(error), more));
  }
};

}  // namespace

Deeds read_connect(StepReader& reader, const std::string& client) {
  ConnectStep step;
  step.client = client;
  const auto target = reader.fields.required_text("connect", "a process or a path");
  if (!target) reader.lost = true;
  if (target && target->find_first_of("/{") != std::string::npos) {
    step.path = reader.path(*reader.fields.find("connect"), "connect");
  } else if (target) {
    step.process = reader.process("connect");
  }
  step.refused = reader.fields.boolean("refused").value_or(false);
  return {{std::move(step)}};
}

}  // namespace kv::drill
