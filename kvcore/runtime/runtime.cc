#include "kvcore/runtime/runtime.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kvcore/base/thread_annotations.h"
#include "kvcore/driver/cuda_vmm.h"
#include "kvcore/hook.h"
#include "kvcore/runtime/registry.h"
#include "kvcore/runtime/service.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

// What this process has of runtimes. Never destroyed, and so neither are they: a thread that still
// runs while the process exits finds everything in its place.
struct Process {
  Mutex mu;
  bool initialising KV_GUARDED_BY(mu) = false;
  std::vector<Runtime*> all KV_GUARDED_BY(mu);  // the last one is the current one
};

Process& process() {
  static Process& instance = *new Process;
  return instance;
}

}  // namespace

struct Runtime::Impl {
  Impl(RuntimeConfig c, std::unique_ptr<Vmm> v, std::function<Status()> close, Clock& k, LogSink l)
      : config(std::move(c)),
        clock(k),
        log(std::move(l)),
        vmm(std::move(v)),
        close_vmm(std::move(close)),
        allocator(make_kv_allocator(*vmm, log)),
        listeners(clock) {}

  static Result<Runtime*> adopt(std::unique_ptr<Impl> impl);
  static void at_exit();
  void shut_down_at_exit();

  Status start_listener(std::int64_t rank, std::int64_t stage);
  StopResult shut_down(bool with_engine, Status* why);
  StopResult run_engine_shutdown(Status* why) KV_EXCLUDES(mu);
  StopResult tear_down(Time until, Status* why) KV_EXCLUDES(mu);

  // The engine's own shutdown and the teardown are each one thread's work at a time.
  enum class Turn { kMine, kNested, kLate };
  Turn enter() KV_EXCLUDES(mu);
  void leave() KV_EXCLUDES(mu);

  bool is_up() KV_EXCLUDES(mu) {
    const MutexLock lock(mu);
    return up;
  }
  void say(Severity severity, const std::string& line) const {
    if (log) log(severity, "runtime: " + line);
  }

  const RuntimeConfig config;
  Clock& clock;
  const LogSink log;
  const std::unique_ptr<Vmm> vmm;
  const std::function<Status()> close_vmm;
  const std::unique_ptr<KvAllocator> allocator;
  ListenerRegistry listeners;
  const pid_t pid = ::getpid();

  Mutex mu;
  std::condition_variable changed;
  bool up KV_GUARDED_BY(mu) = true;
  std::function<void()> engine_shutdown KV_GUARDED_BY(mu);
  std::thread::id busy KV_GUARDED_BY(mu);  // who is between enter() and leave()
};

Runtime::Runtime(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runtime::~Runtime() = default;

// ---- up

namespace {

// One init() at a time, and only while no runtime is up.
Status begin_init() {
  Process& own = process();
  const MutexLock lock(own.mu);
  const bool live = !own.all.empty() && own.all.back()->initialised();
  if (own.initialising || (live && step<"runtime.init.refuse_live">())) {
    step_done<"runtime.init.refuse_live">();
    return Status::error(Code::kFailedPrecondition, "runtime.init", {}, 0,
                         "this process has a runtime that was not shut down");
  }
  own.initialising = true;
  return {};
}

// Makes the runtime of a begun init(), and lets the next one begin whichever way it ends.
template <typename Make>
Result<Runtime*> finish_init(const Make& make) {
  struct Ended {
    ~Ended() {
      const MutexLock lock(process().mu);
      process().initialising = false;
    }
  } const ended;
  try {
    {
      const MutexLock lock(process().mu);
      process().all.reserve(process().all.size() + 1);
    }
    Result<Runtime*> made = make();
    const MutexLock lock(process().mu);
    if (made.ok()) process().all.push_back(*made);
    return made;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "runtime.init");
  }
}

}  // namespace

Result<Runtime*> Runtime::Impl::adopt(std::unique_ptr<Impl> impl) {
  // The driver has registered what it does at exit by now, so ours comes before it.
  if (std::atexit(&Impl::at_exit) != 0) {
    static_cast<void>(impl->close_vmm());
    return Status::error(Code::kOutOfMemory, "runtime.init", "exit hook", 0,
                         "the C library takes no more of them");
  }
  return new Runtime(std::move(impl));
}

Result<Runtime*> Runtime::init(RuntimeConfig config, Clock& clock, LogSink log) {
  KV_RETURN_IF_ERROR(config.validate());
  KV_RETURN_IF_ERROR(begin_init());
  return finish_init([&]() -> Result<Runtime*> {
    KV_ASSIGN_OR_RETURN(std::unique_ptr<CudaVmm> opened,
                        CudaVmm::open(config.driver_path, config.device));
    CudaVmm* driver = opened.get();
    return Impl::adopt(std::make_unique<Impl>(
        std::move(config), std::move(opened), [driver] { return driver->close(); }, clock,
        std::move(log)));
  });
}

Result<Runtime*> Runtime::init(RuntimeConfig config, std::unique_ptr<Vmm> vmm,
                               std::function<Status()> close, Clock& clock, LogSink log) {
  KV_RETURN_IF_ERROR(config.validate());
  KV_RETURN_IF_ERROR(begin_init());
  return finish_init([&] {
    return Impl::adopt(std::make_unique<Impl>(std::move(config), std::move(vmm), std::move(close),
                                              clock, std::move(log)));
  });
}

KvAllocator& Runtime::allocator() {
  return *impl_->allocator;
}
Vmm& Runtime::vmm() {
  return *impl_->vmm;
}
bool Runtime::initialised() {
  return impl_->is_up();
}

// ---- listeners

Status Runtime::start_listener() {
  return impl_->start_listener(impl_->config.rank, impl_->config.stage);
}

Status Runtime::start_listener(std::int64_t rank, std::int64_t stage) {
  return impl_->start_listener(rank, stage);
}

Status Runtime::Impl::start_listener(std::int64_t rank, std::int64_t stage) {
  if (!is_up()) {
    return Status::error(Code::kFailedPrecondition, "runtime.start_listener", {}, 0,
                         "the runtime has been shut down");
  }
  RuntimeConfig wanted = config;
  wanted.rank = rank;
  wanted.stage = stage;
  KV_RETURN_IF_ERROR(wanted.validate());
  KV_ASSIGN_OR_RETURN(const SocketPlace place,
                      socket_place(config.socket_root, config.ipc_name, static_cast<int>(rank),
                                   static_cast<int>(stage)));
  ListenerOptions options;
  options.socket_path = place.path;
  options.socket_root = config.socket_root;
  options.lock_limit = config.drain_limit;
  options.max_body = config.max_body;
  options.label = "listener." + (stage > 0 ? "pp" + std::to_string(stage) + "." : std::string()) +
                  "w" + std::to_string(rank);
  const auto make = [this, &options] {
    return Listener::start(
        options,
        [pages = allocator.get()](const Message& request) -> Result<Message> {
          return serve_request(*pages, request);
        },
        clock, log);
  };
  try {
    return listeners.start({rank, stage}, config.drain_limit, make);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "runtime.start_listener");
  }
}

StopResult Runtime::stop_listener(std::int64_t rank, std::int64_t stage, Status* why) {
  return impl_->listeners.stop({rank, stage}, impl_->config.drain_limit, why);
}

std::string Runtime::socket_path() {
  return impl_->listeners.socket_path({impl_->config.rank, impl_->config.stage});
}

// ---- down

void Runtime::set_engine_shutdown(std::function<void()> shutdown) {
  const MutexLock lock(impl_->mu);
  impl_->engine_shutdown = std::move(shutdown);
}

StopResult Runtime::shutdown(Status* why) {
  point<"runtime.shutdown.begin">();
  const StopResult result = impl_->shut_down(true, why);
  note<"runtime.shutdown.return">(0, static_cast<std::int64_t>(result));
  return result;
}

StopResult Runtime::Impl::shut_down(bool with_engine, Status* why) {
  // From a handler nothing can be drained, so nothing is begun either.
  if (const auto own = listeners.own()) return own->finish_stop(clock.now(), why);
  if (!is_up()) return StopResult::kDone;
  StopResult result = with_engine ? run_engine_shutdown(why) : StopResult::kDone;
  if (result != StopResult::kDone) return result;
  listeners.close();
  const Time until = deadline_after(clock.now(), config.drain_limit);
  result = listeners.stop_all(config.drain_limit, why);
  if (result != StopResult::kDone && step<"runtime.shutdown.defer">()) {
    step_done<"runtime.shutdown.defer">();
  } else {
    result = tear_down(until, why);
  }
  if (result != StopResult::kDone) listeners.reopen();
  return result;
}

// kDone: it has run, or there is none, or we are in it. kNotDrained: another thread is at it, and
// was still when the limit had passed.
StopResult Runtime::Impl::run_engine_shutdown(Status* why) {
  const Turn turn = enter();
  if (turn != Turn::kMine) {
    return turn == Turn::kNested ? StopResult::kDone : StopResult::kNotDrained;
  }
  std::function<void()> shutdown;
  {
    const MutexLock lock(mu);
    shutdown.swap(engine_shutdown);
  }
  std::optional<std::string> thrown;
  try {
    if (shutdown) shutdown();
  } catch (const std::exception& exception) {
    thrown = exception.what();
  } catch (...) {
    thrown = "an exception of unknown type";
  }
  leave();
  if (!thrown) return StopResult::kDone;
  say(Severity::kWarning, "the engine's own shutdown threw: " + *thrown);
  if (step<"runtime.shutdown.engine_throws">()) {
    // The listeners are stopped all the same: they would go on serving a worker that is half down.
    step_done<"runtime.shutdown.engine_throws">();
    return StopResult::kDone;
  }
  if (why != nullptr) *why = Status::error(Code::kInternal, "runtime.shutdown", {}, 0, *thrown);
  return StopResult::kFailed;
}

StopResult Runtime::Impl::tear_down(Time until, Status* why) {
  const Turn turn = enter();
  if (turn == Turn::kLate) return StopResult::kNotDrained;
  Status status;
  if (is_up()) {
    point<"runtime.teardown">();
    // Whoever is inside the driver without being a listener (a thread that maps ahead, say) has
    // what is left of the same limit.
    const bool bounded = step<"runtime.teardown.limit">();
    status = allocator->release_all(clock, bounded ? until : kNever);
    if (bounded) step_done<"runtime.teardown.limit">();
    if (status.ok()) status = close_vmm();
    if (status.ok()) {
      const MutexLock lock(mu);
      up = false;
    }
  }
  if (turn == Turn::kMine) leave();
  if (status.ok()) return StopResult::kDone;
  const bool late = status.code() == Code::kDeadline;
  say(late ? Severity::kWarning : Severity::kError,
      (late ? "not drained: " : "teardown: ") + status.to_string());
  if (why != nullptr) *why = status;
  return late ? StopResult::kNotDrained : StopResult::kFailed;
}

Runtime::Impl::Turn Runtime::Impl::enter() {
  const std::thread::id self = std::this_thread::get_id();
  MutexLock lock(mu);
  if (busy == self) return Turn::kNested;
  const auto idle = [this]() KV_NO_THREAD_SAFETY_ANALYSIS { return busy == std::thread::id(); };
  if (!idle() && !clock.wait(lock, changed, deadline_after(clock.now(), config.drain_limit),
                             "runtime.shutdown.turn", idle)) {
    return Turn::kLate;
  }
  busy = self;
  return Turn::kMine;
}

void Runtime::Impl::leave() {
  const MutexLock lock(mu);
  busy = std::thread::id();
  changed.notify_all();
}

// ---- exit

void Runtime::Impl::at_exit() {
  Runtime* current = nullptr;
  {
    Process& own = process();
    const MutexLock lock(own.mu);
    if (!own.all.empty()) current = own.all.back();
  }
  if (current != nullptr) current->impl_->shut_down_at_exit();
}

void Runtime::Impl::shut_down_at_exit() {
  // A child forked without an exec shares the sockets, and the driver's state is its parent's.
  if (::getpid() != pid || !is_up()) return;
  if (!step<"runtime.exit_hook">()) return;
  Status why;
  const StopResult result = shut_down(false, &why);
  if (result == StopResult::kNotDrained) {
    say(Severity::kWarning, "not drained at exit: the teardown is skipped");
  } else if (result == StopResult::kFailed) {
    say(Severity::kError, "failed at exit: " + why.to_string());
  }
  step_done<"runtime.exit_hook">(0, static_cast<std::int64_t>(result));
}

}  // namespace kv
