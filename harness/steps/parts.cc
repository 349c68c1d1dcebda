#include "harness/steps/parts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/base/files.h"

namespace kv::drill {

std::string moment(const Address& address) {
  Address bare = address;
  bare.process.clear();
  bare.thread.clear();
  std::string text = to_string(bare);
  if (!address.process.empty()) text += " in " + address.process;
  if (!address.thread.empty()) text += ", thread " + address.thread;
  return text;
}

std::string unless(const std::string& name, const std::string& same) {
  return name == same ? std::string() : " as " + name;
}

tl::expected<std::string, std::string> read_output(const std::string& path) {
  const int fd = open_regular(AT_FDCWD, path, O_RDONLY);
  std::string text;
  char chunk[65536];
  ssize_t got = fd < 0 ? -1 : 1;
  while (got > 0) {
    got = ::read(fd, chunk, sizeof chunk);
    if (got > 0) text.append(chunk, static_cast<std::size_t>(got));
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (got < 0) return tl::unexpected(path + ": " + std::strerror(error));
  return text;
}

std::string words_of(const Instance& instance) {
  constexpr std::size_t kMost = 400;
  const std::string words = last_words(instance.stderr_path, kMost);
  return words.empty() ? "it is empty" : fmt::format("it ends '{}'", words);
}

}  // namespace kv::drill
