#include "kvcore/listener/listener_connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "kvcore/hook.h"

namespace kv {

void Connection::cut_off() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

Connection::Read Connection::read() {
  Result<FrameReader::Part> part = reader_.want();
  if (!part.ok()) {
    status_ = part.status();
    return Read::kLost;
  }
  ssize_t n = 0;
  do {
    n = ::recv(fd_.get(), part->data, part->size, 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Read::kDrained : Read::kEnd;
  if (n == 0) return Read::kEnd;
  const bool filled = static_cast<std::size_t>(n) == part->size;
  status_ = reader_.got(static_cast<std::size_t>(n));
  if (!status_.ok()) return Read::kLost;
  return filled ? Read::kMore : Read::kDrained;
}

void Connection::queue(std::string frame) {
  if (!unsent()) {
    out_ = std::move(frame);
    sent_ = 0;
  } else {
    out_ += frame;
  }
}

bool Connection::flush(std::int64_t generation) {
  while (unsent()) {
    // Without the flag a peer that went away ends the process by SIGPIPE.
    int flags = 0;
    if (step<"listener.reply.survive_gone_peer">(generation)) {
      flags = MSG_NOSIGNAL;
      step_done<"listener.reply.survive_gone_peer">(generation);
    }
    const ssize_t n = ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, flags);
    if (n >= 0) {
      sent_ += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
  if (out_.capacity() > kKeptRoom) {
    out_ = std::string();
  } else {
    out_.clear();
  }
  sent_ = 0;
  return true;
}

}  // namespace kv
