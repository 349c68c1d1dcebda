#include "kvcore/listener/listener.h"

#include <atomic>
#include <condition_variable>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "kvcore/base/thread_annotations.h"
#include "kvcore/hook.h"
#include "kvcore/listener/listener_files.h"
#include "kvcore/listener/listener_reactor.h"

namespace kv {
namespace {

std::atomic<std::int64_t> g_generations{0};

}  // namespace

const char* stop_result_name(StopResult result) {
  switch (result) {
    case StopResult::kDone:
      return "done";
    case StopResult::kNotDrained:
      return "not_drained";
    case StopResult::kFailed:
      return "failed";
  }
  return "unknown";
}

struct Listener::Impl {
  Impl(ListenerOptions o, Clock& c, LogSink l, std::int64_t g)
      : options(std::move(o)), clock(c), log(std::move(l)), generation(g) {}

  bool is_gone() KV_EXCLUDES(mu) {
    const MutexLock lock(mu);
    return gone;
  }
  // Waits until no other stop is at work and takes the work over. False: `result` says it all.
  bool take_over(Time deadline, StopResult* result) KV_EXCLUDES(mu);
  void hand_back(StopResult result) KV_EXCLUDES(mu);
  // The work itself; one thread at a time.
  StopResult drain_and_remove(Time deadline, Status* why);
  void say(Severity severity, const std::string& line) const {
    if (log) log(severity, options.label + ": " + line);
  }

  const ListenerOptions options;
  Clock& clock;
  const LogSink log;
  const std::int64_t generation;
  std::shared_ptr<Reactor> reactor;

  Mutex mu;
  std::condition_variable changed;
  bool working KV_GUARDED_BY(mu) = false;  // a stop is between take_over() and its result
  bool gone KV_GUARDED_BY(mu) = false;     // a stop has said done
  // The working stop's own.
  SocketFile file;
  std::thread thread;
};

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Listener>> Listener::start(ListenerOptions options, Handler handler,
                                                  Clock& clock, LogSink log) {
  const std::int64_t generation = ++g_generations;
  auto impl = std::make_unique<Impl>(std::move(options), clock, std::move(log), generation);
  const ListenerOptions& own = impl->options;
  const bool bounded = step<"listener.start.lock_limit">(generation);
  const SocketFile::Turn turn{generation, clock,
                              bounded ? deadline_after(clock.now(), own.lock_limit) : kNever};
  auto made = SocketFile::create(own.socket_path, own.socket_root, turn);
  if (bounded) step_done<"listener.start.lock_limit">(generation, made.ok() ? 1 : 0);
  KV_ASSIGN_OR_RETURN(SocketFile::Bound bound, std::move(made));
  impl->file = std::move(bound.file);
  impl->reactor = std::make_shared<Reactor>(Reactor::Setup{
      generation, own.label, own.max_body, std::move(handler), own.ended, &clock, impl->log});
  Status status = impl->reactor->prepare(std::move(bound.listening));
  if (status.ok()) {
    try {
      impl->thread = std::thread([reactor = impl->reactor] { reactor->run(); });
    } catch (const std::system_error& error) {
      status = Status::system("listener.thread", own.label, error.code().value());
    }
  }
  if (!status.ok()) {
    // The reason is what the caller wants to know, not what removing the socket met.
    static_cast<void>(impl->file.remove(turn));
    return status;
  }
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Listener::~Listener() {
  if (impl_ == nullptr) return;
  if (impl_->reactor->on_own_thread()) {
    impl_->reactor->cut();
  } else if (!impl_->is_gone()) {
    stop(Nanos::max());
  }
  abandon();
}

void Listener::abandon() {
  const MutexLock lock(impl_->mu);
  if (impl_->working || impl_->gone) return;
  // The thread ends by itself, and what it uses is its own as well.
  if (impl_->thread.joinable()) impl_->thread.detach();
  impl_->gone = true;
}

bool Listener::on_own_thread() const {
  if (!impl_->reactor->on_own_thread()) return false;
  // A stop that missed this would wait for itself.
  if (!step<"listener.stop.own_thread">(impl_->generation)) return false;
  step_done<"listener.stop.own_thread">(impl_->generation);
  return true;
}

std::int64_t Listener::connection() {
  return Reactor::connection();
}

std::int64_t Listener::generation() const {
  return impl_->generation;
}
const std::string& Listener::socket_path() const {
  return impl_->options.socket_path;
}

// ---- stop

void Listener::begin_stop() {
  if (on_own_thread()) return;
  point<"listener.stop.begin">(impl_->generation);
  impl_->reactor->cut();
}

StopResult Listener::stop(Nanos limit, Status* why) {
  const Time deadline = deadline_after(impl_->clock.now(), limit);
  begin_stop();
  return finish_stop(deadline, why);
}

// Every way out of a stop passes the note at the end: that is what its promise is checked by.
StopResult Listener::finish_stop(Time deadline, Status* why) {
  StopResult result = StopResult::kNotDrained;
  if (!on_own_thread()) {
    impl_->reactor->cut();
    if (impl_->take_over(deadline, &result)) {
      try {
        result = impl_->drain_and_remove(deadline, why);
      } catch (const std::bad_alloc&) {  // it keeps its place: a later call goes on from there
        result = StopResult::kFailed;
      }
      impl_->hand_back(result);
    }
  }
  note<"listener.stop.return">(impl_->generation, static_cast<std::int64_t>(result));
  return result;
}

bool Listener::Impl::take_over(Time deadline, StopResult* result) {
  MutexLock lock(mu);
  while (working) {
    lock.unlock();
    point<"listener.stop.second">(generation);
    if (!step<"listener.stop.second_waits">(generation)) {
      *result = StopResult::kDone;
      return false;
    }
    lock.lock();
    const bool free = clock.wait(lock, changed, deadline, "listener.stop.second",
                                 [this]() KV_NO_THREAD_SAFETY_ANALYSIS { return !working; });
    lock.unlock();
    step_done<"listener.stop.second_waits">(generation, free ? 1 : 0);
    if (!free) {
      *result = StopResult::kNotDrained;
      return false;
    }
    lock.lock();
  }
  if (gone) {
    *result = StopResult::kDone;
    return false;
  }
  working = true;
  return true;
}

void Listener::Impl::hand_back(StopResult result) {
  const MutexLock lock(mu);
  working = false;
  gone = result == StopResult::kDone;
  changed.notify_all();
}

StopResult Listener::Impl::drain_and_remove(Time deadline, Status* why) {
  point<"listener.stop.draining">(generation);
  bool ended = false;
  if (step<"listener.stop.wait_drain">(generation)) {
    ended = reactor->wait_ended(deadline);
    step_done<"listener.stop.wait_drain">(generation, ended ? 1 : 0);
  } else {
    ended = reactor->ended();
  }
  if (!ended && step<"listener.stop.defer">(generation)) {
    const std::string command = reactor->inside();
    say(Severity::kWarning,
        "not drained" + (command.empty() ? std::string() : ": " + command + " is still handled"));
    step_done<"listener.stop.defer">(generation);
    return StopResult::kNotDrained;
  }
  if (thread.joinable()) {
    if (ended) {
      thread.join();
    } else {
      thread.detach();  // only a drill comes here; what the thread uses is its own as well
    }
  }
  const Status status = file.remove({generation, clock, deadline});
  if (!status.ok()) {
    say(Severity::kError, "not removed: " + status.to_string());
    if (why != nullptr) *why = status;
    return StopResult::kFailed;
  }
  if (ended) reactor->close_sockets();
  return StopResult::kDone;
}

}  // namespace kv
