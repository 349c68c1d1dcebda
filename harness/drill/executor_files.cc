// Steps about files and the card.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "harness/process/card_ledger.h"
#include "harness/drill/executor.h"
#include "harness/base/files.h"

namespace kv::drill {
namespace {

using How = Outcome::How;

int make_file(const std::string& path, const std::string& contents) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  const int error = write_all(fd, contents) ? 0 : errno;
  ::close(fd);
  return error;
}

// A socket that nobody listens at, as a killed listener leaves it.
int make_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::copy(path.begin(), path.end(), address.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error =
      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

// "bytes 4096, expected 0" for the first amount that differs; empty: none does.
std::string difference(const CardStep& step, const Holding& held) {
  const std::pair<std::optional<std::int64_t>, std::pair<const char*, std::uint64_t>> amounts[] = {
      {step.bytes, {"bytes", held.bytes}},
      {step.handles, {"handles", held.handles}},
      {step.mappings, {"mappings", held.mappings}},
      {step.reservations, {"reservations", held.reservations}}};
  std::string text;
  for (const auto& [wanted, got] : amounts) {
    if (!wanted || static_cast<std::uint64_t>(*wanted) == got.second) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("{} {}, expected {}", got.first, got.second, *wanted);
  }
  return text;
}

}  // namespace

tl::expected<std::string, std::string> Executor::expand(const std::string& path) {
  std::string text;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t open = path.find('{', at);
    const std::size_t close = open == std::string::npos ? open : path.find('}', open);
    if (close == std::string::npos) return text + path.substr(at);
    text += path.substr(at, open - at);
    const std::string name = path.substr(open + 1, close - open - 1);
    at = close + 1;
    if (name == "run") {
      text += folder_.path();
      continue;
    }
    const auto dot = name.find('.');
    const std::string process = name.substr(0, dot);
    const std::string fact = dot == std::string::npos ? "" : name.substr(dot + 1);
    const Instance* instance = situation_.find(process);
    if (instance == nullptr) return tl::unexpected(process + " was not started");
    const auto known = instance->facts.find(fact);
    if (known == instance->facts.end()) {
      return tl::unexpected(fmt::format("{} has announced no '{}'", process, fact));
    }
    text += known->second;
  }
  return text;
}

Outcome Executor::carry_out(const FileStep& step) {
  situation_.take_in();
  const auto path = expand(step.path);
  if (!path) return {How::kWrong, path.error()};
  const FileId id = identify(*path);
  switch (step.state) {
    case FileStep::State::kAbsent:
      if (id.exists) return {How::kWrong, fmt::format("{} is there", *path)};
      return {};
    case FileStep::State::kSame: {
      const auto known = remembered_.find(step.as);
      if (known == remembered_.end()) return {How::kNotJudged, {}};
      if (!id.exists) return {How::kWrong, fmt::format("{} is gone", *path)};
      if (!(known->second == id)) {
        return {How::kWrong, fmt::format("{} is another file (inode {}, before {})", *path,
                                         id.inode, known->second.inode)};
      }
      return {};
    }
    case FileStep::State::kSocket:
    case FileStep::State::kPresent:
      break;
  }
  if (!id.exists) return {How::kWrong, fmt::format("{} is not there", *path)};
  if (step.state == FileStep::State::kSocket && !id.is_socket) {
    return {How::kWrong, fmt::format("{} is no socket", *path)};
  }
  if (!step.as.empty()) remembered_[step.as] = id;
  return {};
}

Outcome Executor::carry_out(const PlaceStep& step) {
  situation_.take_in();
  const auto path = expand(step.path);
  if (!path) return {How::kWrong, path.error()};
  if (step.replace && ::remove(path->c_str()) != 0 && errno != ENOENT) {
    return {How::kWrong, fmt::format("{} cannot be replaced: {}", *path, std::strerror(errno))};
  }
  int error = make_folders(path->substr(0, path->rfind('/')), &placed_);
  if (error == 0) error = step.socket ? make_socket(*path) : make_file(*path, step.contents);
  if (error != 0) {
    return {How::kWrong, fmt::format("{} cannot be made: {}", *path, std::strerror(error))};
  }
  placed_.push_back(*path);
  return {};
}

Outcome Executor::carry_out(const CardStep& step) {
  if (!options_.fake_card) {
    return {How::kSkipped, "the driver keeps no ledger that says what a process holds"};
  }
  const Instance* instance = situation_.find(step.process);
  if (instance == nullptr) return {How::kWrong, step.process + " was not started"};
  const auto state = read_ledger(folder_.ledger());
  if (!state) return {How::kBroken, state.error()};
  Holding held;
  for (const Holding& owner : state->owners) {
    if (owner.pid == instance->child.pid()) held = owner;
  }
  std::string why = difference(step, held);
  if (why.empty()) return {};
  return {How::kWrong, fmt::format("{} holds {}", step.process, why)};
}

}  // namespace kv::drill
