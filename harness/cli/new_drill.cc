// kvdrill new: a first drill to change, with a word on every line that is not plain.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "harness/cli/commands.h"
#include "harness/report/report.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;

// {0} is the name. The language's reference is scenarios/README.md.
constexpr std::string_view kText = R"toml(# Try it:  kvdrill run {1}
name  = "{0}"
about = "A request is held in its handler while the worker is told to shut down; shutdown waits for it."

[processes]
worker = {{role = "worker"}}  # roles, moments and commands are the engine's: PROGRAM --describe

[drill]
steps = [
  {{start = "worker"}},  # goes on when the worker is ready

  # The next thread that comes to this moment stands there until it is released.
  {{hold = "listener.handler.begin", as = "parked"}},
  {{client = "c", connect = "worker"}},
  {{client = "c", send = {{cmd = "kv_tensors_created", group_id = 0}}}},
  {{wait = "listener.handler.begin"}},

  # A call goes on in the background; `pending` says that it cannot return by itself.
  # By its `id` reports and proofs call the check.
  {{call = "shutdown", as = "stop"}},
  {{wait = "listener.stop.draining"}},
  {{id = "waits for the handler", pending = "stop"}},
  {{release = "parked"}},

  {{id = "stopped", returns = "stop", value = "done"}},
  {{id = "in order", order = ["listener.dispatch", "listener.cut", "listener.handler.end", "listener.stop.return"]}},
  {{wait = "listener.thread.end"}},
  {{exit = "worker"}},
]

# A proof leaves a protection of the engine out; exactly these checks must fail then:
# kvdrill prove {1}
[[prove]]
skip  = ["listener.stop.wait_drain"]
fails = ["waits for the handler", "stopped", "in order", "clean_logs"]
)toml";

std::string refused_name(const std::string& name) {
  const bool plain =
      !name.empty() && std::isalnum(static_cast<unsigned char>(name[0])) != 0 &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
      });
  if (plain) return {};
  return fmt::format(
      "'{}' is no name of a drill, expected letters, digits, '_' and '-', the first no sign", name);
}

}  // namespace

int new_command(const CommandLine& line) {
  const std::string& given = line.paths.at(0);
  const bool is_path = given.find('/') != std::string::npos || given.ends_with(".toml");
  const fs::path path = is_path ? fs::path(given) : fs::path("scenarios") / (given + ".toml");
  const auto refused = [](const std::string& why) {
    complain("new: " + why);
    return 2;
  };
  if (path.extension() != ".toml") {
    return refused(fmt::format("{}: expected a path that ends in .toml, or a bare name", given));
  }
  if (std::string why = refused_name(path.stem().string()); !why.empty()) return refused(why);
  std::error_code error;
  if (!is_path) fs::create_directory("scenarios", error);
  std::string name = path.stem().string();
  std::replace(name.begin(), name.end(), '_', ' ');
  const std::string text = fmt::format(kText, name, path.string());
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) return refused(path.string() + " is there already");
  const auto reason = [&path] {
    return fmt::format("{}: {}", path.string(), std::generic_category().message(errno));
  };
  if (fd < 0) return refused(reason());
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string why = whole ? "" : reason();
  ::close(fd);
  if (!whole) {
    fs::remove(path, error);
    return refused(why);
  }
  fmt::print("{} is written; try it:\n  kvdrill run {}\n", path.string(), path.string());
  return 0;
}

}  // namespace kv::drill
