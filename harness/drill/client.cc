#include "harness/drill/client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kv::drill {

namespace {
// So much is read in one go: a peer that never stops sending must not hold up the supervisor.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;
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
  *this = Client();
  fd_ = fd;
  return 0;
}

int Client::send(std::string_view bytes, std::optional<std::size_t> first) {
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

bool Client::receive() {
  if (!open() || ended_) return false;
  char bytes[16384];
  for (std::size_t total = 0; total < kMostAtOnce;) {
    const ssize_t got = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      in_.append(bytes, static_cast<std::size_t>(got));
      total += static_cast<std::size_t>(got);
    } else if (got == 0) {
      ended_ = true;
      return false;
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      reset_ = errno == ECONNRESET;
      ended_ = true;
      return false;
    }
  }
  return true;
}

std::optional<std::string> Client::take_frame() {
  if (in_.size() < 4) return std::nullopt;
  std::size_t length = 0;
  for (int i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(in_[i]);
  if (in_.size() - 4 < length) return std::nullopt;
  std::string body = in_.substr(4, length);
  in_.erase(0, 4 + length);
  return body;
}

void Client::close(bool half) {
  if (!open()) return;
  if (half) {
    ::shutdown(fd_, SHUT_WR);
  } else {
    ::close(fd_);
    fd_ = -1;
  }
  allowed_ = sent_;
}

}  // namespace kv::drill
