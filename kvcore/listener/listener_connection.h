// One accepted connection of a listener: bytes in, frames out of them, replies back. Reads and
// writes never block; what the peer does not take yet is kept.
//
// Threads: the listener's own. Another thread may only call cut_off(), with the lock held under
// which the listener opens and closes connections, so that the number cannot be another's already.
// Ownership: owns its descriptor and buffers.
#ifndef KVCORE_LISTENER_LISTENER_CONNECTION_H_
#define KVCORE_LISTENER_LISTENER_CONNECTION_H_

#include <cstdint>
#include <string>

#include "kvcore/base/status.h"
#include "kvcore/base/unique_fd.h"
#include "kvcore/wire/frame.h"

namespace kv {

class Connection {
 public:
  enum class Read : std::uint8_t {
    kDrained,  // what was there has been read
    kMore,     // there may be more, at once
    kEnd,      // the peer sends no more, or is gone
    kLost,     // what came is no frame; see status()
  };

  Connection(UniqueFd fd, std::uint32_t max_body) : fd_(std::move(fd)), reader_(max_body) {}

  int fd() const { return fd_.get(); }
  // Both directions end: the peer sees its end at once, reads here find what had arrived and then
  // the end, writes fail.
  void cut_off();

  // One read. Afterwards there may be a whole frame (complete()).
  Read read();
  bool complete() const { return reader_.complete(); }
  std::string_view body() const { return reader_.body(); }
  // Leaves a complete frame behind. kProtocol: what follows it is no frame.
  Status next() { return reader_.next(); }
  // Of the frame that is not complete: whether its header is there, and the bytes of that part.
  bool in_body() const { return reader_.state() == FrameReader::State::kBody; }
  std::size_t have() const { return reader_.have(); }
  // Why read() said kLost.
  const Status& status() const { return status_; }

  // Adds a frame to what is to be sent.
  void queue(std::string frame);
  bool unsent() const { return sent_ < out_.size(); }
  // Sends what the peer takes now. False: the peer is gone.
  bool flush(std::int64_t generation);
  // The connection is to be closed once everything is sent.
  void end_after_replies() { ending_ = true; }
  bool ending() const { return ending_; }

  // Events that the listener's poll set waits for on it; 0: not in the set.
  std::uint32_t watched = 0;
  // Unique among those of its listener.
  std::int64_t number = 0;
  // Its place in the listener's table.
  std::size_t index = 0;

 private:
  UniqueFd fd_;
  FrameReader reader_;
  Status status_;
  std::string out_;
  std::size_t sent_ = 0;
  bool ending_ = false;
};

}  // namespace kv

#endif  // KVCORE_LISTENER_LISTENER_CONNECTION_H_
