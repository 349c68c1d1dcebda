#include "harness/drill/supervisor_launch.h"

#include <unistd.h>

#include <string_view>
#include <utility>

#include "harness/board/sanitizer.h"

namespace kv::drill {
namespace {

// A sanitizer replaces the handlers of these, and then a crash ends with its exit code instead.
constexpr std::string_view kLeaveSignals =
    "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0";

// The value of a variable in this process's environment; empty when it is not set.
std::string own(std::string_view name) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=') {
      return std::string(line.substr(name.size() + 1));
    }
  }
  return {};
}

std::map<std::string, std::string> environment_of(const Drill& drill, const RunOptions& options,
                                                  const RunFolder& folder,
                                                  const ProcessSpec& process) {
  auto all = sanitizer_options(environ, !kSanitizer.empty());
  all.merge(inherited_environment());
  all["TMPDIR"] = folder.path();
  all["KVDRILL_PROCESS"] = process.name;
  if (options.fake_card) {
    all["KVDRILL_CARD"] = folder.card();
    all["KVDRILL_CARD_DEVICES"] = std::to_string(drill.devices);
    all["KVDRILL_CARD_BYTES"] = std::to_string(drill.device_bytes);
  }
  const std::string board = Board::environment(kBoardDescriptor, kWakeDescriptor);
  const auto equals = board.find('=');
  all[board.substr(0, equals)] = board.substr(equals + 1);
  for (const auto& [name, value] : process.environment) all[name] = value;
  return all;
}

}  // namespace

std::map<std::string, std::string> inherited_environment() {
  std::map<std::string, std::string> all = {{"LANG", "C.UTF-8"}};
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"}) {
    if (std::string value = own(name); !value.empty()) all[name] = std::move(value);
  }
  all.try_emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  return all;
}

std::string ipc_of(const ProcessSpec& process, const RunFolder& folder) {
  return process.ipc.empty() ? folder.ipc_name() : process.ipc;
}

Launch make_launch(const Drill& drill, const RunOptions& options, const RunFolder& folder,
                   const Board& board, const ProcessSpec& process) {
  Launch launch;
  launch.program = options.engine;
  launch.arguments = {"--name",         process.name,
                      "--role",         process.role,
                      "--rank",         std::to_string(process.rank),
                      "--stage",        std::to_string(process.stage),
                      "--device",       std::to_string(process.device),
                      "--ipc",          ipc_of(process, folder),
                      "--socket-root",  folder.socket_root(),
                      "--segment-root", folder.segment_root(),
                      "--driver",       options.driver};
  launch.arguments.insert(launch.arguments.end(), process.arguments.begin(),
                          process.arguments.end());
  launch.environment = environment_of(drill, options, folder, process);
  launch.folder = folder.path();
  launch.limits = process.limits;
  launch.descriptors = {{board.board_fd(), kBoardDescriptor}, {board.wake_fd(), kWakeDescriptor}};
  return launch;
}

std::map<std::string, std::string> sanitizer_options(const char* const* theirs, bool sanitized) {
  constexpr std::string_view kNames[] = {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS",
                                         "LSAN_OPTIONS"};
  std::map<std::string, std::string> all;
  for (const char* const* entry = theirs; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    for (const auto name : kNames) {
      if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=') {
        all[std::string(name)] = line.substr(name.size() + 1);
      }
    }
  }
  if (sanitized) {
    for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
      std::string& value = all[name];
      if (!value.empty()) value += ":";
      value += kLeaveSignals;
    }
  }
  return all;
}

}  // namespace kv::drill
