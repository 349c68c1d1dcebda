#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "fakes/card/probes/probe.h"

namespace kv::card {
namespace {

void print(const std::string& fact, const std::string& rest) {
  const std::string line = "{\"fact\":\"" + fact + "\",\"value\":" + rest + "}\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) give_up("cannot write");
}

}  // namespace

void Facts::status(const std::string& fact, CUresult code) const {
  print(fact, "\"" + driver_.name_of(code) + "\",\"code\":" + std::to_string(code));
}
void Facts::number(const std::string& fact, std::int64_t value) const {
  print(fact, std::to_string(value));
}
void Facts::truth(const std::string& fact, bool value) const {
  print(fact, value ? "true" : "false");
}
void Facts::text(const std::string& fact, const std::string& value) const {
  print(fact, "\"" + value + "\"");
}

std::string Partner::receive(int* fd) const {
  std::array<char, 256> bytes = {};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  iovec part = {bytes.data(), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) give_up("the partner is gone");
  if (const cmsghdr* header = fd != nullptr ? CMSG_FIRSTHDR(&message) : nullptr) {
    std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
  }
  return {bytes.data(), static_cast<std::size_t>(got)};
}

void Partner::send(const std::string& bytes, int fd) const {
  std::string copy = bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  iovec part = {copy.data(), copy.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) give_up("cannot send to the partner");
}

std::string Partner::ask(const std::string& what) const {
  send(what);
  return receive();
}

void Partner::kill() const {
  ::kill(pid, SIGKILL);
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) give_up("waitpid");
}

}  // namespace kv::card
