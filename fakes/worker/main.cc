// kvworker: a fake engine process, a whole engine on kvcore that obeys a drill.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fakes/worker/caches.h"
#include "fakes/worker/commands.h"
#include "fakes/worker/glue.h"
#include "fakes/worker/kv_caches.h"
#include "fakes/worker/options.h"
#include "harness/board/kvdrill.h"
#include "kvcore/base/clock.h"
#include "kvcore/runtime/runtime.h"

namespace kv::worker {
namespace {

// What threads and the exit hook use until the process is gone; never destroyed.
Worker& worker() {
  static Worker& instance = *new Worker;
  return instance;
}

Clock& the_clock() {
  if (kvdrill_clock_is_manual() == 0) {
    static Clock& real = *new RealClock;
    return real;
  }
  static ManualClock& manual = *new ManualClock(Time(Nanos(kvdrill_now())));
  kvdrill_on_clock(
      [](void* clock, std::int64_t now) {
        static_cast<ManualClock*>(clock)->set(Time(Nanos(now)));
      },
      &manual);
  return manual;
}

void log_line(Severity severity, std::string_view line) {
  const std::string text(line);
  kvdrill_log(static_cast<int>(severity), text.c_str());
  std::fprintf(stderr, "%s\n", text.c_str());
}

constexpr const char* kRoles[] = {"worker", "scheduler", "producer", "reader", nullptr};

const kvdrill_engine& engine() {
  static const kvdrill_engine instance{KVDRILL_CONTRACT_VERSION, "kvworker", kRoles, kCommands,
                                       contract_sites(),         &worker(),  0};
  return instance;
}

// `--describe --driver PATH` is `--describe` with the points of that driver library.
bool described(int argc, char** argv, int* exit_code) {
  *exit_code = 0;
  if (argc == 4 && std::string_view(argv[1]) == "--describe" &&
      std::string_view(argv[2]) == "--driver") {
    if (::dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      std::fprintf(stderr, "kvworker: --driver: %s\n", ::dlerror());
      *exit_code = 2;
      return true;
    }
    argc = 2;
  }
  return kvdrill_described(argc, argv, &engine()) != 0;
}

// The engine's part of the exit: before the runtime's hook, because it is registered after it.
void close_caches() {
  if (::getpid() != worker().pid) return;  // a forked child's exit: the caches are its parent's
  Status why;
  const StopResult blocks = worker().blocks->close_all(&why);
  if (blocks != StopResult::kDone) {
    log_line(Severity::kWarning,
             std::string("blocks: at exit: ") + stop_result_name(blocks) + ": " + why.to_string());
  }
  const StopResult result = worker().caches->close();
  if (result == StopResult::kDone) return;
  log_line(Severity::kWarning, std::string("caches: at exit: ") + stop_result_name(result));
}

// The framework's part: it was there before the runtime and ends after it.
void end_framework() {
  if (worker().caches == nullptr || ::getpid() != worker().pid) return;
  worker().caches->framework_ends();
}

Status bring_up(Clock& clock) {
  const Options& options = worker().options;
  std::atexit(end_framework);
  KV_ASSIGN_OR_RETURN(Runtime * runtime, Runtime::init(options.runtime, clock, &log_line));
  worker().pid = ::getpid();
  worker().clock = &clock;
  worker().caches = new Caches(runtime->vmm(), clock, &log_line, options.runtime);
  worker().blocks = new KvCaches(runtime->allocator(), options.shape, options.runtime.drain_limit,
                                 clock, &log_line);
  worker().runtime.store(runtime, std::memory_order_release);
  std::atexit(close_caches);
  if (options.role == "producer") {
    KV_RETURN_IF_ERROR(worker().caches->start_transfer(options.framework_caches));
    kvdrill_announce("socket", worker().caches->socket().c_str());
  }
  if (options.tensors) {
    KV_RETURN_IF_ERROR(runtime->allocator().create_tensors(0, options.shape));
  }
  if (options.listener) {
    KV_RETURN_IF_ERROR(runtime->start_listener());
    announce_socket(worker(), options.runtime.rank, options.runtime.stage);
  }
  return {};
}

int run(int argc, char** argv) {
  int exit_code = 0;
  if (described(argc, argv, &exit_code)) return exit_code;
  if (!parse_options(argc, argv, &worker().options, &exit_code)) return exit_code;
  install(kvdrill_attach(&engine()));
  const Status status = bring_up(the_clock());
  if (!status.ok()) {
    log_line(Severity::kError, "kvworker: " + status.to_string());
    return 1;
  }
  kvdrill_ready();
  // Nothing is shut down here: a drill calls that, or the exit hook does it.
  return kvdrill_serve();
}

}  // namespace
}  // namespace kv::worker

int main(int argc, char** argv) {
  return kv::worker::run(argc, argv);
}
