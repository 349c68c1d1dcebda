#include "kvcore/wire/socket_place.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid.hpp>
#include <boost/uuid/uuid_io.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

namespace kv {
namespace {

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

std::string name_digits(const std::string& ipc_name) {
  const boost::uuids::name_generator_sha1 generator(boost::uuids::ns::dns());
  return boost::uuids::to_string(generator(ipc_name)).substr(0, 8);
}

Status refuse(std::string_view object, const std::string& text) {
  return Status::error(Code::kInvalidArgument, "socket_place", object, 0, text);
}

Result<SocketPlace> place(std::string_view root, const std::string& ipc_name, int rank, int stage) {
  SocketPlace place;
  place.directory = tidy_path(root);
  if (place.directory == "/") place.directory.clear();
  place.directory += "/kvcached-tp-" + ipc_name + "-" + name_digits(ipc_name);
  place.stage_directory = place.directory;
  if (stage > 0) place.stage_directory += "/pp" + std::to_string(stage);
  place.path = place.stage_directory + "/w" + std::to_string(rank) + ".sock";
  if (place.path.size() <= kSocketPathLimit) return place;
  return refuse(place.path, std::to_string(place.path.size()) + " bytes; a socket's path holds " +
                                std::to_string(kSocketPathLimit) +
                                ": choose a shorter root or IPC name");
}

}  // namespace

std::string tidy_path(std::string_view path) {
  std::string tidy;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (!tidy.empty() || path.front() == '/') tidy += '/';
    tidy += part;
  }
  if (tidy.empty() && !path.empty()) return path.front() == '/' ? "/" : ".";
  return tidy;
}

std::string sanitize_ipc_name(std::string_view name) {
  std::string clean;
  for (const char c : name) {
    if (clean.size() == kIpcNameLimit) break;
    const bool continues = (static_cast<unsigned char>(c) & 0xc0) == 0x80;
    if (!continues) clean.push_back(plain(c) ? c : '-');
  }
  return clean;
}

Result<SocketPlace> socket_place(std::string_view root, std::string_view ipc_name, int rank,
                                 int stage) {
  try {
    if (root.empty()) return refuse("root", "is empty; expected a directory");
    if (ipc_name.empty()) return refuse("ipc_name", "is empty");
    if (const std::string clean = sanitize_ipc_name(ipc_name); clean != ipc_name) {
      return refuse("ipc_name", "\"" + std::string(ipc_name) +
                                    "\" has other characters than letters, digits, '_' and '-', "
                                    "or too many; expected e.g. \"" +
                                    clean + "\"");
    }
    if (rank < 0) return refuse("rank", std::to_string(rank) + "; expected 0 or more");
    if (stage < 0) return refuse("stage", std::to_string(stage) + "; expected 0 or more");
    return place(root, std::string(ipc_name), rank, stage);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "socket_place");
  }
}

Result<UniqueFd> connect_socket(const std::string& path) {
  constexpr const char* kOperation = "connect";
  if (path.empty() || path.size() > kSocketPathLimit) {
    return Status::error(Code::kInvalidArgument, kOperation, path, 0,
                         "socket path of " + std::to_string(path.size()) +
                             " bytes; expected 1 to " + std::to_string(kSocketPathLimit));
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Status::system(kOperation, path, errno);
  int rc = 0;
  do {
    rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return fd;
  // EAGAIN is a full queue, which cannot be waited for on this descriptor.
  const int error = errno;
  return Status::error(
      Code::kUnavailable, kOperation, path, error,
      error == EAGAIN ? "the listener's queue is full" : std::generic_category().message(error));
}

}  // namespace kv
