// The keeper of a PageAllocator: the thread that maps ahead and unmaps what is too much.
#include <system_error>

#include "kvcore/cache/page_allocator.h"
#include "kvcore/hook.h"

namespace kv {

Status PageAllocator::start() {
  if (!options_.keeper) return {};
  {
    const MutexLock lock(mutex_);
    filling_ = options_.low > 0;
    keeping_ = true;
  }
  try {
    const MutexLock lock(join_mutex_);
    keeper_ = std::thread([this] { keep(); });
  } catch (const std::system_error& error) {
    const MutexLock lock(mutex_);
    keeping_ = false;
    return Status::system("pages.keeper", "", error.code().value());
  }
  return {};
}

bool PageAllocator::stop(Nanos limit) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (step<"pages.stop.wake">()) {
      changed_.notify_all();
      step_done<"pages.stop.wake">();
    }
    if (step<"pages.stop.wake_keeper">()) {
      need_.notify_all();
      step_done<"pages.stop.wake_keeper">();
    }
    const auto out = [this]() KV_NO_THREAD_SAFETY_ANALYSIS { return inside_ == 0 && !keeping_; };
    if (!out() && step<"pages.stop.drain">()) {
      Time until = kNever;
      if (step<"pages.stop.limit">()) {
        until = deadline_after(clock_.now(), limit);
        step_done<"pages.stop.limit">();
      }
      // The limit counts from before anybody can see that it runs.
      note<"pages.stop.draining">(inside_);
      const bool drained = clock_.wait(lock, changed_, until, "pages.stop", out);
      step_done<"pages.stop.drain">();
      if (!drained) return false;
    }
  }
  const MutexLock lock(join_mutex_);
  if (keeper_.joinable() && step<"pages.stop.join">()) {
    keeper_.join();
    step_done<"pages.stop.join">();
  }
  return true;
}

bool PageAllocator::wants_more() const {
  return filling_ && count(Use::kReady) < options_.high && count(Use::kFree) > 0;
}

bool PageAllocator::has_work() const {
  return wants_more() || (surplus() > 0 && !shedding_failed_);
}

void PageAllocator::keep() {
  note<"thread.label">(0, 0, "pages.keeper");
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (surplus() > 0 && !shedding_failed_) {
      const Status status = shed_surplus(lock);
      if (!status.ok() && step<"pages.keeper.rest_after_failure">()) {
        shedding_failed_ = true;
        step_done<"pages.keeper.rest_after_failure">();
      }
      if (!status.ok()) say(Severity::kWarning, "pages stay mapped: " + status.to_string());
    } else if (wants_more()) {
      const Status status = map_ahead(lock);
      if (!status.ok()) {
        filling_ = false;
        if (status.code() != Code::kOutOfMemory) {
          say(Severity::kWarning, "nothing mapped ahead: " + status.to_string());
        }
      }
    } else {
      note<"pages.keeper.rest">(count(Use::kReady));
      clock_.wait(lock, need_, kNever, "pages.keeper",
                  [this]() KV_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || has_work(); });
    }
  }
  note<"pages.keeper.end">();
  keeping_ = false;
  changed_.notify_all();
}

// One page at a time: who waits for any gets the first, and stop() waits for one driver call.
Status PageAllocator::map_ahead(MutexLock& lock) {
  const Pages page = first_of(free_, 1);
  move(page, Use::kTransit);
  ++returning_;
  PageBackend::Done done =
      ask_backend(lock, &PageBackend::map, page, &point<"pages.prealloc">, page.front());
  --returning_;
  if (done.status.ok()) {
    move(page, Use::kReady);
  } else if (step<"pages.prealloc.put_back">(page.front())) {
    settle(page, done.states);
    step_done<"pages.prealloc.put_back">(page.front());
  }
  filling_ = count(Use::kReady) < options_.high;
  changed();
  return done.status;
}

}  // namespace kv
