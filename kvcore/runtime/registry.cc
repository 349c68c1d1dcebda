#include "kvcore/runtime/registry.h"

#include <algorithm>
#include <utility>

#include "kvcore/hook.h"

namespace kv {
namespace {

std::string name_of(ListenerRegistry::Key key) {
  return "rank " + std::to_string(key.rank) + ", stage " + std::to_string(key.stage);
}

Status refused(ListenerRegistry::Key key, std::string_view why) {
  return Status::error(Code::kFailedPrecondition, "listener.start", name_of(key), 0, why);
}

}  // namespace

Status ListenerRegistry::start(Key key, Nanos limit, const Make& make) {
  std::shared_ptr<Listener> old;
  {
    const MutexLock lock(mu_);
    if (closed_ > 0) return refused(key, "the runtime is shutting down");
    Entry& entry = entries_[key];
    if (entry.starting) return refused(key, "another thread is starting it");
    entry.starting = true;
    old = entry.listener;
  }
  // Whichever way the start ends: who waits for it goes on.
  struct Started {
    ~Started() { registry.started(key); }
    ListenerRegistry& registry;
    const Key key;
  } const started{*this, key};
  return replace(key, old, limit, make);
}

void ListenerRegistry::started(Key key) {
  const MutexLock lock(mu_);
  const auto entry = entries_.find(key);
  entry->second.starting = false;
  if (entry->second.listener == nullptr) entries_.erase(entry);
  changed_.notify_all();
}

Status ListenerRegistry::replace(Key key, const std::shared_ptr<Listener>& old, Nanos limit,
                                 const Make& make) {
  if (old != nullptr) {
    Status why;
    const StopResult stopped = old->stop(limit, &why);
    if (stopped != StopResult::kDone && step<"runtime.listener.restart_guard">(key.rank)) {
      Status status =
          refused(key, std::string("the one that is registered answers its stop with ") +
                           stop_result_name(stopped) + (why.ok() ? "" : ": " + why.to_string()));
      step_done<"runtime.listener.restart_guard">(key.rank);
      return status;
    }
    forget(key, old, stopped == StopResult::kDone);
  }
  {
    const MutexLock lock(mu_);
    if (closed_ > 0) return refused(key, "the runtime is shutting down");
  }
  KV_ASSIGN_OR_RETURN(std::unique_ptr<Listener> made, make());
  const MutexLock lock(mu_);
  entries_[key].listener = std::move(made);
  return {};
}

void ListenerRegistry::forget(Key key, const std::shared_ptr<Listener>& listener, bool stopped) {
  if (!stopped) listener->abandon();  // only a drill comes here; its destructor would wait
  const MutexLock lock(mu_);
  const auto entry = entries_.find(key);
  if (entry == entries_.end() || entry->second.listener != listener) return;
  entry->second.listener = nullptr;
  if (!entry->second.starting) entries_.erase(entry);
}

StopResult ListenerRegistry::finish(Key key, const std::shared_ptr<Listener>& listener,
                                    Time deadline, Status* why) {
  const StopResult result = listener->finish_stop(deadline, why);
  if (result == StopResult::kDone) {
    forget(key, listener, true);
  } else if (result == StopResult::kFailed) {
    if (step<"runtime.shutdown.keep_on_error">(key.rank)) {
      step_done<"runtime.shutdown.keep_on_error">(key.rank);
    } else {
      forget(key, listener, false);
    }
  }
  return result;
}

StopResult ListenerRegistry::stop(Key key, Nanos limit, Status* why) {
  std::shared_ptr<Listener> listener;
  {
    const MutexLock lock(mu_);
    const auto entry = entries_.find(key);
    if (entry != entries_.end()) listener = entry->second.listener;
  }
  if (listener == nullptr) return StopResult::kDone;
  const Time deadline = deadline_after(clock_.now(), limit);
  listener->begin_stop();
  return finish(key, listener, deadline, why);
}

StopResult ListenerRegistry::stop_all(Nanos limit, Status* why) {
  Time deadline = deadline_after(clock_.now(), limit);
  std::vector<std::pair<Key, std::shared_ptr<Listener>>> all;
  {
    const MutexLock lock(mu_);
    all = registered();
  }
  for (const auto& [key, listener] : all) listener->begin_stop();
  bool settled = true;
  {
    // A start under way either sees that we are closed, or registers one more for us to stop.
    MutexLock lock(mu_);
    const auto quiet = [this]() KV_NO_THREAD_SAFETY_ANALYSIS {
      return std::none_of(entries_.begin(), entries_.end(),
                          [](const auto& entry) { return entry.second.starting; });
    };
    if (!quiet()) settled = clock_.wait(lock, changed_, deadline, "runtime.shutdown.start", quiet);
    all = registered();
  }
  StopResult worst = settled ? StopResult::kDone : StopResult::kNotDrained;
  bool first = true;
  for (const auto& [key, listener] : all) {
    if (!first) {
      // They drain in parallel: none of them gets the limit for itself.
      if (step<"runtime.shutdown.one_limit">(key.rank)) {
        step_done<"runtime.shutdown.one_limit">(key.rank);
      } else {
        deadline = deadline_after(clock_.now(), limit);
      }
    }
    first = false;
    Status failure;
    const StopResult result = finish(key, listener, deadline, &failure);
    if (why != nullptr && why->ok()) *why = failure;
    if (result == StopResult::kNotDrained || worst == StopResult::kDone) worst = result;
  }
  return worst;
}

void ListenerRegistry::close() {
  const MutexLock lock(mu_);
  ++closed_;
}

void ListenerRegistry::reopen() {
  const MutexLock lock(mu_);
  --closed_;
}

std::shared_ptr<Listener> ListenerRegistry::own() {
  std::vector<std::pair<Key, std::shared_ptr<Listener>>> all;
  {
    const MutexLock lock(mu_);
    all = registered();
  }
  for (const auto& [key, listener] : all) {
    if (listener->on_own_thread()) return listener;
  }
  return nullptr;
}

std::string ListenerRegistry::socket_path(Key key) {
  const MutexLock lock(mu_);
  const auto entry = entries_.find(key);
  if (entry == entries_.end() || entry->second.listener == nullptr) return {};
  return entry->second.listener->socket_path();
}

std::vector<std::pair<ListenerRegistry::Key, std::shared_ptr<Listener>>>
ListenerRegistry::registered() {
  std::vector<std::pair<Key, std::shared_ptr<Listener>>> all;
  for (const auto& [key, entry] : entries_) {
    if (entry.listener != nullptr) all.emplace_back(key, entry.listener);
  }
  return all;
}

}  // namespace kv
