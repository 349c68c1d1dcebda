// The caller's end of the protocol: one request to one worker, or the same to all ranks at once,
// each on a connection of its own, all within one limit of time.
//
// Threads: a Client holds no state between calls; every member may be called from any thread, and
// blocks the caller only. It starts no thread.
// Ownership: connections live as long as the call. The clock must outlive the Client.
#ifndef KVCORE_WIRE_CLIENT_H_
#define KVCORE_WIRE_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvcore/base/clock.h"
#include "kvcore/base/status.h"
#include "kvcore/wire/message.h"

namespace kv {

// For an error of Client: the request was surely not carried out. False: it may have been.
bool not_carried_out(const Status& error);

// One worker's listener.
struct Peer {
  int rank = 0;
  int stage = 0;
  std::string socket_path;  // see socket_place.h
};

class Client {
 public:
  struct Options {
    Nanos timeout = std::chrono::seconds(60);  // of a whole call; 0 or less: no bound
    std::uint32_t max_body = 16u << 20;        // bytes of a reply
  };

  explicit Client(Clock& clock) : Client(clock, Options{}) {}
  Client(Clock& clock, const Options& options) : clock_(clock), options_(options) {}

  // Sends the request and returns the reply, whatever its status says. An error names rank, stage
  // and command, and says whether the request can have been carried out:
  // kUnavailable: nobody listens, the listener's queue is full, or the peer closed without a reply.
  // kDeadline: no whole reply within the limit. kProtocol: the reply is not one message.
  // kInvalidArgument: the request cannot be encoded, the path is too long. kSystem: no descriptor.
  Result<Message> request(const Peer& peer, const Message& message);

  // The same to all peers: every request is under way before the first reply is waited for, and
  // one limit bounds all. The results stand in the order of the peers.
  std::vector<Result<Message>> broadcast(const std::vector<Peer>& peers, const Message& message);

 private:
  Time deadline() const;

  Clock& clock_;
  const Options options_;
};

}  // namespace kv

#endif  // KVCORE_WIRE_CLIENT_H_
