#include "harness/drill/client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "harness/wire/wire.h"

namespace kv::drill {

namespace {
// So much is read in one go: a peer that never stops sending must not hold up the supervisor.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;
constexpr std::size_t kHeader = 4;

// The length of the whole frame, header and all, that the bytes begin with; 0: they hold none.
std::size_t whole_frame(std::string_view bytes) {
  if (bytes.size() < kHeader) return 0;
  std::size_t body = 0;
  for (std::size_t i = 0; i < kHeader; ++i) body = body << 8 | static_cast<unsigned char>(bytes[i]);
  return bytes.size() - kHeader < body ? 0 : kHeader + body;
}

// The message of a frame, or bytes that are none, in one short line.
std::string shown(std::string_view bytes) {
  constexpr std::size_t kLong = 200, kBytes = 16, kDecoded = std::size_t{64} << 10;
  std::string text;
  if (whole_frame(bytes) == bytes.size() && !bytes.empty() && bytes.size() <= kDecoded) {
    if (const auto message = unpickle(bytes.substr(kHeader))) {
      text = to_json(*message);
      return text.size() <= kLong ? text : text.substr(0, kLong) + "...";
    }
  }
  for (const char c : bytes.substr(0, kBytes)) {
    fmt::format_to(std::back_inserter(text), "{}{:02x}", text.empty() ? "" : " ",
                   static_cast<unsigned char>(c));
  }
  return bytes.size() <= kBytes ? text : text + " ...";
}
}  // namespace

Client::~Client() {
  close(false);
}

Client::Client(Client&& other) noexcept {
  *this = std::move(other);
}

Client& Client::operator=(Client&& other) noexcept {
  if (this == &other) return *this;
  close(false);
  fd_ = std::exchange(other.fd_, -1);
  tell_ = std::exchange(other.tell_, {});
  told_ = std::exchange(other.told_, 0);
  message_ = std::exchange(other.message_, 0);
  in_told_ = std::exchange(other.in_told_, 0);
  out_ = std::exchange(other.out_, {});
  sent_ = std::exchange(other.sent_, 0);
  allowed_ = std::exchange(other.allowed_, 0);
  gated_ = std::exchange(other.gated_, false);
  in_ = std::exchange(other.in_, {});
  ended_ = std::exchange(other.ended_, false);
  reset_ = std::exchange(other.reset_, false);
  return *this;
}

int Client::connect(std::string_view path) {
  if (open()) return EISCONN;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  if (path.empty()) return ENOENT;  // to the kernel it would be another kind of address
  if (path.find('\0') != std::string_view::npos) return EINVAL;
  std::copy(path.begin(), path.end(), address.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  Client fresh;
  fresh.fd_ = fd;
  fresh.tell_ = std::move(tell_);
  *this = std::move(fresh);
  tell(fmt::format("is connected to {}", path));
  return 0;
}

int Client::send(std::string_view bytes, std::optional<std::size_t> first) {
  message_ = out_.size();
  out_.append(bytes);
  if (!gated_) {
    gated_ = first.has_value() && *first < bytes.size();
    allowed_ = out_.size() - (gated_ ? bytes.size() - *first : 0);
  }
  return flush();
}

int Client::release_rest(std::optional<std::size_t> first) {
  const std::size_t held = out_.size() - allowed_;
  gated_ = first.has_value() && *first < held;
  allowed_ += gated_ ? *first : held;
  return flush();
}

int Client::flush() {
  if (!open()) return EBADF;
  if (tell_ && told_ < allowed_) tell_sending();
  while (sent_ < allowed_) {
    const ssize_t sent =
        ::send(fd_, out_.data() + sent_, allowed_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno != EINTR) {
      const int error = errno;
      // What the peer will never take is forgotten: nobody waits for the socket to take it.
      if (error != EAGAIN) sent_ = allowed_;
      return error;
    }
  }
  return 0;
}

// Told before it is sent: what it brings about comes later.
void Client::tell_sending() {
  const std::size_t now = allowed_ - told_;
  if (told_ > message_) {
    tell(fmt::format("sends {} more bytes", now));
  } else {
    const std::string_view message = std::string_view(out_).substr(message_);
    tell(fmt::format("sends {}{} bytes: {}", now,
                     now < message.size() ? fmt::format(" of {}", message.size()) : "",
                     shown(message)));
  }
  told_ = allowed_;
}

void Client::tell_received(std::size_t fresh) {
  bool whole = false;
  for (std::string_view rest = std::string_view(in_).substr(in_told_);;) {
    const std::size_t length = whole_frame(rest);
    if (length == 0) break;
    whole = true;
    tell("gets " + shown(rest.substr(0, length)));
    in_told_ += length;
    rest.remove_prefix(length);
  }
  if (!whole && fresh > 0) tell(fmt::format("gets {} bytes, no whole reply", fresh));
  if (ended_) tell(reset_ ? "is reset" : "sees the end of the connection");
}

bool Client::receive() {
  if (!open() || ended_) return false;
  const std::size_t before = in_.size();
  take_in();
  if (tell_) tell_received(in_.size() - before);
  return !ended_;
}

void Client::take_in() {
  char bytes[16384];
  for (std::size_t total = 0; total < kMostAtOnce;) {
    const ssize_t got = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      in_.append(bytes, static_cast<std::size_t>(got));
      total += static_cast<std::size_t>(got);
    } else if (got == 0) {
      ended_ = true;
      return;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      reset_ = errno == ECONNRESET;
      ended_ = true;
      return;
    }
  }
}

std::optional<std::string> Client::take_frame() {
  const std::size_t length = whole_frame(in_);
  if (length == 0) return std::nullopt;
  std::string body = in_.substr(kHeader, length - kHeader);
  in_.erase(0, length);
  in_told_ -= std::min(in_told_, length);
  return body;
}

void Client::close(bool half) {
  if (!open()) return;
  tell(half ? "closes its sending half" : "closes");
  if (half) {
    ::shutdown(fd_, SHUT_WR);
  } else {
    ::close(fd_);
    fd_ = -1;
  }
  allowed_ = sent_;
}

}  // namespace kv::drill
