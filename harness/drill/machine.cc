#include "harness/drill/machine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/process/process.h"

namespace kv::drill {
namespace {

// Without so many no run is to be trusted, whatever its processes say.
constexpr int kFewProcesses = 16;
// Of one whose processes say that they got no more: engines start many threads at once.
constexpr int kEnoughProcesses = 256;

// A limit that the processes of a run have from whoever started kvdrill.
struct Limit {
  const char* check;
  __rlimit_resource_t resource;
  rlim_t enough;      // an engine that needs more leaks, or means it
  int error, signal;  // how a process tells that it met the limit
  const char* what;
  const char* remedy;
};
constexpr Limit kLimits[] = {
    {"descriptors", RLIMIT_NOFILE, 256, EMFILE, 0, "open files of a process", "ulimit -n"},
    {"file size", RLIMIT_FSIZE, RLIM_INFINITY, EFBIG, SIGXFSZ, "bytes of a file", "ulimit -f"},
    {"address space", RLIMIT_AS, RLIM_INFINITY, ENOMEM, 0, "bytes of address space", "ulimit -v"}};

std::string words_of(int error) {
  return std::generic_category().message(error);
}

bool says(const DrillResult& result, int error) {
  const std::string words = words_of(error);
  return std::any_of(
      result.checks.begin(), result.checks.end(),
      [&words](const CheckResult& check) { return check.why.find(words) != std::string::npos; });
}

// A drill that injects it, or starts with a small disk, means it.
bool injects(const Drill& drill, int error) {
  if (error == ENOSPC && drill.small_root) return true;
  return foretold(drill.steps).codes.count(error) != 0;
}

std::string no_space(const RunFolder& folder, const Drill& drill, const DrillResult& result) {
  std::string why = no_room_on(folder.path());
  // Others may have made room again meanwhile.
  if (why.empty() && says(result, ENOSPC) && !injects(drill, ENOSPC)) {
    why = "a process says: " + words_of(ENOSPC);
  }
  return why;
}

std::string no_processes(const Drill& drill, const DrillResult& result) {
  const bool refused = says(result, EAGAIN) && !injects(drill, EAGAIN);
  const int enough = refused ? kEnoughProcesses : kFewProcesses;
  const int left = processes_left(enough);
  if (left >= enough) return {};
  return fmt::format(
      "the kernel gives this user {} more processes and threads, expected {} or more{}", left,
      enough, advice_on_fork(EAGAIN));
}

// Only where the limit itself is low: an engine that leaks meets any.
std::string too_low(const Limit& limit, const Drill& drill, const DrillResult& result) {
  struct rlimit now {};
  if (::getrlimit(limit.resource, &now) != 0 || now.rlim_cur >= limit.enough) return {};
  const bool killed = std::any_of(result.processes.begin(), result.processes.end(),
                                  [&limit](const ProcessResult& process) {
                                    return limit.signal != 0 && process.signal == limit.signal;
                                  });
  if (!killed && (!says(result, limit.error) || injects(drill, limit.error))) return {};
  const std::string enough = limit.enough == RLIM_INFINITY
                                 ? std::string("no limit")
                                 : fmt::format("{} or more", limit.enough);
  return fmt::format("the {} are limited to {}, expected {}: raise `{}`", limit.what, now.rlim_cur,
                     enough, limit.remedy);
}

}  // namespace

std::optional<CheckResult> blame_machine(const RunFolder& folder, const Drill& drill,
                                         const DrillResult& result) {
  if (result.verdict == Verdict::kPass) return std::nullopt;
  std::vector<std::pair<const char*, std::string>> lacks;
  for (const Limit& limit : kLimits) lacks.emplace_back(limit.check, too_low(limit, drill, result));
  lacks.emplace_back("space", no_space(folder, drill, result));
  lacks.emplace_back("processes", no_processes(drill, result));
  for (auto& [name, why] : lacks) {
    if (why.empty()) continue;
    return CheckResult{name, Verdict::kError, std::move(why) + "; what failed may be due to that",
                       drill.position};
  }
  return std::nullopt;
}

int processes_left(int enough) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return enough;  // it cannot be told
  std::vector<pid_t> all;
  while (static_cast<int>(all.size()) < enough) {
    const pid_t pid = ::fork();
    if (pid < 0) break;
    if (pid == 0) {
      ::close(ends[1]);
      char byte = 0;
      while (::read(ends[0], &byte, 1) < 0 && errno == EINTR) {
      }
      ::_exit(0);
    }
    all.push_back(pid);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  for (const pid_t pid : all) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return static_cast<int>(all.size());
}

}  // namespace kv::drill
