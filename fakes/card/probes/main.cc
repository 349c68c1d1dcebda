// kvprobe LIBRARY [PROBE]: asks the driver library what it answers, and prints it as facts, one
// JSON object a line. Every probe runs in a process of its own; a probe that the library cannot
// serve is named on standard error and skipped.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "fakes/card/probes/probe.h"

// Deaths by SIGSEGV are facts here, not reports.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "handle_segv=0:detect_leaks=0";
}
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "handle_segv=0";
}

namespace kv::card {
namespace {

constexpr int kRoleSocket = 3;
std::string library;  // NOLINT: set once in main

constexpr std::array<const Probe*, 4> kAll = {kPageProbes, kSharingProbes, kWorkProbes,
                                              kExitProbes};

template <typename Use>
void for_each_probe(Use use) {
  for (const Probe* probe : kAll) {
    for (; probe->name != nullptr; ++probe) use(*probe);
  }
}

bool can_be_served(const Probe& probe, const Driver& driver) {
  if (probe.needs == Probe::Needs::kHeldStreams) return driver.is_card();
  if (probe.needs != Probe::Needs::kTwoDevices) return true;
  // Asked in a child: this process must not have the driver up when it starts probes.
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    ::_exit(driver.cuInit(0) == CUDA_SUCCESS && driver.cuDeviceGetCount(&count) == CUDA_SUCCESS &&
                    count >= 2
                ? 0
                : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Starts this program anew, with `socket` as descriptor 3 when there is one.
pid_t start_self(const char* what, const std::string& name, int socket) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (socket >= 0) ::dup2(socket, kRoleSocket);
  ::execl("/proc/self/exe", "kvprobe", library.c_str(), what, name.c_str(), nullptr);
  ::_exit(127);
}

bool run_in_a_process(const Probe& probe, const Driver& driver) {
  const Facts facts(driver);
  int status = 0;
  const pid_t child = start_self("--probe", probe.name, -1);
  if (::waitpid(child, &status, 0) != child) give_up("waitpid");
  const std::string end = WIFSIGNALED(status)
                              ? "killed by signal " + std::to_string(WTERMSIG(status))
                              : "exit " + std::to_string(WEXITSTATUS(status));
  if (probe.end == Probe::End::kProcess) {
    facts.text(std::string(probe.name) + ".process", end);
    return true;
  }
  if (probe.end == Probe::End::kSignal && WIFSIGNALED(status)) {
    facts.text(probe.name, end);
    return true;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::cerr << "kvprobe: probe " << probe.name << " ended with " << end << "\n";
  return false;
}

int run_all(const Driver& driver) {
  bool good = true;
  for_each_probe([&](const Probe& probe) {
    if (can_be_served(probe, driver)) {
      good = run_in_a_process(probe, driver) && good;
    } else {
      std::cerr << "kvprobe: skipped " << probe.name << ": the library cannot serve it\n";
    }
  });
  return good ? 0 : 1;
}

int run_one(const Driver& driver, const std::string& name) {
  int result = 2;
  for_each_probe([&](const Probe& probe) {
    if (name != probe.name) return;
    probe.run(driver, Facts(driver));
    result = 0;
  });
  return result;
}

}  // namespace

Partner start_partner(const char* role) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) give_up("socketpair");
  const Partner partner{start_self("--role", role, ends[1]), ends[0]};
  ::close(ends[1]);
  return partner;
}

}  // namespace kv::card

int main(int argc, char** argv) {
  using namespace kv::card;       // NOLINT(google-build-using-namespace): main only
  std::signal(SIGCHLD, SIG_DFL);  // ignored by a parent it would take the ends of the children
  if (argc < 2 || argc > 4) {
    std::cerr << "usage: kvprobe LIBRARY [PROBE]\n";
    return 2;
  }
  library = argv[1];
  const Driver& driver = load_driver(library);
  if (argc == 2) return run_all(driver);
  const std::string name = argv[argc - 1];
  if (argc == 4 && std::strcmp(argv[2], "--role") == 0) {
    const Role role = role_named(name);
    if (role == nullptr) give_up("no such role: " + name);
    role(driver, Partner{-1, kRoleSocket});
    return 0;
  }
  return run_one(driver, name);
}
