// The keeper of a PageAllocator: the thread that maps ahead and unmaps what is too much.
#include <system_error>

#include "kvcore/hook.h"
#include "kvcore/page_allocator.h"

namespace kv {

Status PageAllocator::start() {
  if (!options_.keeper) return {};
  {
    const MutexLock lock(mutex_);
    filling_ = options_.low > 0;
  }
  try {
    const MutexLock lock(join_mutex_);
    keeper_ = std::thread([this] { keep(); });
  } catch (const std::system_error& error) {
    return Status::system("pages.keeper", "", error.code().value());
  }
  return {};
}

void PageAllocator::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    if (step<"pages.stop.wake">()) {
      changed_.notify_all();
      step_done<"pages.stop.wake">();
    }
    need_.notify_all();
  }
  const MutexLock lock(join_mutex_);
  if (keeper_.joinable()) keeper_.join();
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
      shedding_failed_ = !status.ok();
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
      clock_.wait(lock, need_, kNever, "pages.keeper",
                  [this]() KV_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || has_work(); });
    }
  }
}

// One page at a time: who waits for any gets the first, and stop() waits for one driver call.
Status PageAllocator::map_ahead(MutexLock& lock) {
  const Pages page = first_of(free_, 1);
  move(page, Use::kTransit);
  ++returning_;
  lock.unlock();
  point<"pages.prealloc">(page.front());
  PageBackend::Done done = backend_.map(page);
  lock.lock();
  --returning_;
  if (done.status.ok()) done.states.assign(1, PageMap::kMapped);
  settle(page, done.states);
  filling_ = count(Use::kReady) < options_.high;
  changed();
  return done.status;
}

}  // namespace kv
