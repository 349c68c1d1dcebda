// place: makes a file or a socket that nobody listens at, with the folders on the way to it.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/process/leftovers.h"
#include "harness/steps/parts.h"

namespace kv::drill {
namespace {

int make_file(const std::string& path, const std::string& contents) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  const int error = write_all(fd, contents) ? 0 : errno;
  if (error != 0) ::unlink(path.c_str());  // half a file is nobody's, and would be found left
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

struct PlaceStep {
  std::string path;  // with {run} and {PROCESS.FACT}
  std::string contents;
  bool socket = false;
  bool replace = false;

  std::string text() const { return fmt::format("place {}{}", socket ? "a socket at " : "", path); }
  void check(Flow& flow) const { flow.started_templates(path, "place"); }

  Outcome carry_out(Executor& executor) const {
    executor.situation().take_in();
    const auto where = executor.expand(path);
    if (!where) return wrong(where.error());
    if (replace && ::remove(where->c_str()) != 0 && errno != ENOENT) {
      return wrong(fmt::format("{} cannot be replaced: {}", *where, std::strerror(errno)));
    }
    std::vector<std::string> made;
    int error = make_folders(where->substr(0, where->rfind('/')), &made);
    for (const std::string& folder : made) executor.placed().push_back({folder, identify(folder)});
    if (error == 0) error = socket ? make_socket(*where) : make_file(*where, contents);
    if (error != 0) {
      return wrong(fmt::format("{} cannot be made: {}", *where, std::strerror(error)));
    }
    executor.placed().push_back({*where, identify(*where)});
    return {};
  }
};

// A drill makes files in its own folder, and where its processes say that they have theirs.
bool is_below_the_run(const std::string& path) {
  if (path.empty()) return true;  // refused already
  if (("/" + path + "/").find("/../") != std::string::npos) return false;
  const auto close = path.find('}');
  if (path.front() != '{' || close == std::string::npos) return false;
  return path.substr(0, close) != "{run" || path.compare(close, 2, "}/") == 0;
}

}  // namespace

Deeds read_place(StepReader& reader) {
  PlaceStep step;
  const Node& path = *reader.fields.find("place");
  step.path = reader.path(path, "place");
  if (path.is(Node::Kind::kText) && !is_below_the_run(step.path)) {
    reader.faults.add(path, fmt::format("place = \"{}\" may lie anywhere, expected a path that "
                                        "begins with {{run}}/ or {{PROCESS.FACT}}, without \"..\"",
                                        step.path));
  }
  step.contents = reader.fields.text("contents").value_or("");
  step.socket = reader.fields.boolean("socket").value_or(false);
  step.replace = reader.fields.boolean("replace").value_or(false);
  if (const Node* contents = reader.fields.find("contents"); contents != nullptr && step.socket) {
    reader.faults.add(*contents, "a socket has no contents, expected one of contents and socket");
  }
  return {{step}};
}

}  // namespace kv::drill
