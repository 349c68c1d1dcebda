#include "kvcore/wire/client.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "kvcore/base/unique_fd.h"
#include "kvcore/wire/frame.h"
#include "kvcore/wire/pickle.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

constexpr const char* kWait = "client.reply";
constexpr std::string_view kNotCarriedOut = "; the request was not carried out";

// One request and its reply on one connection. None of its members blocks.
class Exchange {
 public:
  Exchange(const Peer& peer, std::string_view command, std::string_view frame,
           std::uint32_t max_body)
      : peer_(&peer), command_(command), frame_(frame), reader_(max_body) {}

  void begin() {
    const std::string& path = peer_->socket_path;
    Result<UniqueFd> connected = connect_socket(path);
    if (!connected.ok()) {
      const Status& why = connected.error();
      const std::string text(why.text());
      return end(why.code(), static_cast<int>(why.native()),
                 why.code() == Code::kInvalidArgument
                     ? text
                     : "connect to " + path + ": " + text + outcome());
    }
    fd_ = std::move(*connected);
    send_some();
  }

  bool done() const { return result_.has_value(); }
  bool sending() const { return !done() && sent_ < frame_.size() && !peer_closed_; }
  int fd() const { return fd_.get(); }

  void send_some() {
    while (sending()) {
      const ssize_t n =
          ::send(fd_.get(), frame_.data() + sent_, frame_.size() - sent_, MSG_NOSIGNAL);
      if (n >= 0) {
        sent_ += static_cast<std::size_t>(n);
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != EINTR) {
        // The peer takes no more; a reply that it sent before may still be there to read.
        peer_closed_ = true;
      }
    }
  }

  void receive_some() {
    while (!done()) {
      const auto part = reader_.want();
      if (!part.ok()) return end(Code::kOutOfMemory, 0, "for the reply" + outcome());
      const ssize_t n = ::recv(fd_.get(), part->data, part->size, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        const int error = n < 0 ? errno : 0;
        return end(Code::kUnavailable, error,
                   std::string("the peer closed the connection ") +
                       (reader_.state() == FrameReader::State::kHeader ? "before" : "inside") +
                       " its reply" + outcome());
      }
      if (const Status status = reader_.got(static_cast<std::size_t>(n)); !status.ok()) {
        return end(Code::kProtocol, 0, "reply: " + status.to_string() + outcome());
      }
      if (reader_.complete()) decode();
    }
  }

  // Waits for the whole reply until `deadline`.
  void finish(Clock& clock, Time deadline) {
    while (!done()) {
      const int events = clock.poll(fd_.get(), POLLIN, deadline, kWait);
      if (events < 0) return end(Code::kSystem, errno, "poll: " + words(errno) + outcome());
      if (events == 0) return expire();
      receive_some();
    }
  }

  void expire() { end(Code::kDeadline, 0, "no reply within the limit" + outcome()); }
  void end(Code code, int native, const std::string& text) {
    result_.emplace(Status::error(code, "client.request",
                                  "rank " + std::to_string(peer_->rank) + " stage " +
                                      std::to_string(peer_->stage) + " " + std::string(command_),
                                  native, text));
  }
  Result<Message> take() { return std::move(*result_); }

 private:
  static std::string words(int error) { return std::generic_category().message(error); }

  std::string outcome() const {
    return sent_ == frame_.size() ? "; whether the request was carried out is unknown"
                                  : std::string(kNotCarriedOut);
  }

  void decode() {
    Result<Message> reply = decode_pickle(reader_.body());
    if (!reply.ok()) {
      return end(reply.error().code(), 0, "reply: " + reply.error().to_string() + outcome());
    }
    result_.emplace(std::move(reply));
  }

  const Peer* peer_;
  std::string_view command_, frame_;
  UniqueFd fd_;
  std::size_t sent_ = 0;
  bool peer_closed_ = false;  // for sending
  FrameReader reader_;
  std::optional<Result<Message>> result_;
};

std::string_view command_of(const Message& message) {
  return text_view(message, "cmd").value_or("(no command)");
}

// Requests that do not fit their sockets' buffers go on side by side, so that a peer that reads
// nothing keeps nobody else from getting its own in time.
Status send_rest(std::vector<Exchange>& exchanges, Clock& clock, Time deadline) {
  const auto left = [&exchanges] {
    return std::count_if(exchanges.begin(), exchanges.end(),
                         [](const Exchange& one) { return one.sending(); });
  };
  if (left() == 0) return {};
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (epoll.get() < 0) return Status::system("client.request", "epoll", errno);
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    if (!exchanges[i].sending()) continue;
    epoll_event entry{};
    entry.events = EPOLLOUT;
    entry.data.u64 = i;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, exchanges[i].fd(), &entry) != 0) {
      return Status::system("client.request", "epoll", errno);
    }
  }
  while (left() > 0) {
    const int ready = clock.poll(epoll.get(), POLLIN, deadline, kWait);
    if (ready < 0) return Status::system("client.request", "poll", errno);
    if (ready == 0) return {};  // finish() says so for each that is left
    epoll_event entries[16];
    const int n = ::epoll_wait(epoll.get(), entries, 16, 0);
    for (int i = 0; i < n; ++i) {
      Exchange& one = exchanges[entries[i].data.u64];
      one.send_some();
      if (!one.sending()) ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, one.fd(), nullptr);
    }
  }
  return {};
}

}  // namespace

bool not_carried_out(const Status& error) {
  // A request that cannot be encoded, or a path that is too long.
  return error.code() == Code::kInvalidArgument || error.text().ends_with(kNotCarriedOut);
}

Time Client::deadline() const {
  if (options_.timeout <= Nanos::zero()) return kNever;
  return deadline_after(clock_.now(), options_.timeout);
}

Result<Message> Client::request(const Peer& peer, const Message& message) {
  std::vector<Result<Message>> results = broadcast({peer}, message);
  return std::move(results.front());
}

std::vector<Result<Message>> Client::broadcast(const std::vector<Peer>& peers,
                                               const Message& message) {
  std::vector<Result<Message>> results;
  const Time limit = deadline();
  const Result<std::string> frame = frame_message(message);
  if (!frame.ok()) {
    results.assign(peers.size(), frame.error());
    return results;
  }
  std::vector<Exchange> exchanges;
  exchanges.reserve(peers.size());
  results.reserve(peers.size());
  for (const Peer& peer : peers) {
    exchanges.emplace_back(peer, command_of(message), *frame, options_.max_body).begin();
  }
  const Status trouble = send_rest(exchanges, clock_, limit);
  for (Exchange& one : exchanges) {
    if (!trouble.ok() && one.sending()) {
      one.end(trouble.code(), static_cast<int>(trouble.native()), std::string(trouble.text()));
    }
    // Replies of the others gather in their sockets meanwhile; one that is there when the limit
    // has come is still read.
    one.finish(clock_, limit);
    results.push_back(one.take());
  }
  return results;
}

}  // namespace kv
