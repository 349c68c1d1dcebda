// A raw client of a worker's listener, played by the supervisor: sends what a drill says, byte by
// byte if need be, and never blocks.
//
// A socket that is closed by its peer is readable for ever: stop watching fd() once ended() is
// true.
//
// Threads: the supervisor's single thread. Ownership: a Client owns its descriptor.
#ifndef HARNESS_DRILL_CLIENT_H_
#define HARNESS_DRILL_CLIENT_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kv::drill {

class Client {
 public:
  Client() = default;
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // Called with a few words for all that passes between it and its peer, also while it is sent or
  // received: "sends 4 of 87 bytes: {...}", "gets {...}", "is reset".
  void tell_to(std::function<void(std::string_view)> tell) { tell_ = std::move(tell); }

  // Connects to a unix socket, at once: 0 or an errno value (ECONNREFUSED, ENOENT, EAGAIN when the
  // listener's queue is full, ENAMETOOLONG over 107 bytes, EISCONN when open already). A client can
  // connect again after close(); it has received nothing then.
  int connect(std::string_view path);
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

  // Queues bytes; with `first` only so many of them, the rest (and whatever is queued behind it)
  // when release_rest() is called; which may let go a part only, too. Then sends what the socket
  // takes: 0, EAGAIN (flush() again when
  // writable) or the errno; after EPIPE or the like the bytes are forgotten. No SIGPIPE is raised.
  int send(std::string_view bytes, std::optional<std::size_t> first);
  int release_rest(std::optional<std::size_t> first = std::nullopt);
  int flush();
  bool wants_write() const { return allowed_ > sent_; }

  // Reads what is there (at most 1 MiB at once): true while the connection lives; then ended() is
  // true. What the peer sent before its end is received first.
  bool receive();
  bool ended() const { return ended_; }
  bool reset() const { return reset_; }  // ended by ECONNRESET: the peer dropped unread bytes
  std::string_view received() const { return in_; }
  // Takes one whole frame's body off the received bytes, if it is there.
  std::optional<std::string> take_frame();

  // half: no more is sent (the peer reads an end of file), but replies still come.
  void close(bool half);

 private:
  int fd_ = -1;
  void tell(std::string_view what) const {
    if (tell_) tell_(what);
  }
  void take_in();
  void tell_sending();
  void tell_received(std::size_t fresh);

  std::function<void(std::string_view)> tell_;
  std::string out_;
  std::size_t sent_ = 0, allowed_ = 0;
  std::size_t told_ = 0, message_ = 0;  // of out_: what tell_ knows of, where the last send() began
  bool gated_ = false;                  // bytes wait for release_rest()
  std::string in_;
  std::size_t in_told_ = 0;  // of in_: the whole frames that tell_ knows of
  bool ended_ = false, reset_ = false;
};

}  // namespace kv::drill

#endif  // HARNESS_DRILL_CLIENT_H_
