#include "bench/bare.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace kv::bench {
namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

bool read_all(int fd, std::size_t size) {
  char bytes[4096];
  while (size > 0) {
    const ssize_t n = ::recv(fd, bytes, std::min(size, sizeof bytes), 0);
    if (n <= 0) return false;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool write_all(int fd, std::string_view bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// Connected and asked, or -1.
int ask(const std::string& path, std::string_view request) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const sockaddr_un address = address_of(path);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      write_all(fd, request)) {
    return fd;
  }
  ::close(fd);
  return -1;
}

// The cores that the program was given; asked once, before any thread is moved.
const std::vector<int>& cores() {
  static const std::vector<int> all = [] {
    std::vector<int> found;
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) found.push_back(core);
    }
    return found;
  }();
  return all;
}

bool run_at(std::size_t index) {
  if (index >= cores().size()) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores()[index], &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace

bool run_servers_at(Place place) {
  return run_at(place == Place::kTogether ? 0 : 1);
}
bool run_client_at(Place) {
  return run_at(0);
}

Folder::Folder() {
  char name[] = "/tmp/kvbenchXXXXXX";
  if (::mkdtemp(name) != nullptr) path_ = name;
}
Folder::~Folder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

BareServer::BareServer(const std::string& path, std::string request, std::string reply)
    : request_(std::move(request)), reply_(std::move(reply)) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, SOMAXCONN) != 0) {
    if (fd >= 0) ::close(fd);
    return;
  }
  fd_ = fd;
  thread_ = std::thread([this] { serve(); });
}

BareServer::~BareServer() {
  if (fd_ < 0) return;
  ::shutdown(fd_, SHUT_RDWR);
  thread_.join();
  ::close(fd_);
}

void BareServer::serve() {
  for (;;) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR) continue;
      return;  // shut down
    }
    if (read_all(fd, request_.size())) write_all(fd, reply_);
    ::close(fd);
  }
}

bool bare_exchange(const std::string& path, std::string_view request, std::size_t reply_size) {
  const int fd = ask(path, request);
  if (fd < 0) return false;
  const bool answered = read_all(fd, reply_size);
  ::close(fd);
  return answered;
}

bool bare_broadcast(const std::vector<std::string>& paths, std::string_view request,
                    std::size_t reply_size) {
  bool fine = true;
  std::vector<int> fds;
  fds.reserve(paths.size());
  for (const std::string& path : paths) fds.push_back(ask(path, request));
  for (const int fd : fds) {
    fine = fd >= 0 && read_all(fd, reply_size) && fine;
    if (fd >= 0) ::close(fd);
  }
  return fine;
}

}  // namespace kv::bench
