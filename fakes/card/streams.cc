#include "fakes/card/streams.h"

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <thread>
#include <utility>

#include "fakes/card/report.h"
#include "harness/board/kvdrill.h"

namespace kv::card {
namespace {

bool overlap(const DeviceRange& range, CUdeviceptr address, std::uint64_t size) {
  return range.size > 0 && range.start < address + size && address < range.start + range.size;
}

}  // namespace

CUresult Streams::create(CUcontext context, bool blocking, CUstream* stream) {
  auto made = std::make_shared<Stream>();
  made->context = context;
  made->blocking = blocking;
  const MutexLock lock(mutex_);
  all_.push_back(made);
  *stream = made.get();
  return CUDA_SUCCESS;
}

CUresult Streams::destroy(CUstream stream) {
  const MutexLock lock(mutex_);
  for (const StreamPtr& each : all_) {
    if (each.get() != stream || each->is_default || each->destroyed) continue;
    each->destroyed = true;  // what is queued still runs
    forget_if_idle(StreamPtr(each));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

void Streams::forget_if_idle(const StreamPtr& stream) {
  if (stream->destroyed && stream->queue.empty()) std::erase(all_, stream);
}

StreamPtr Streams::find(CUstream stream, CUcontext current) {
  constexpr std::uintptr_t kPerThread = 2;  // 1: the default stream; we have one for all threads
  const MutexLock lock(mutex_);
  const bool wants_default = reinterpret_cast<std::uintptr_t>(stream) <= kPerThread;
  for (const StreamPtr& each : all_) {
    if (wants_default ? each->is_default && each->context == current
                      : each.get() == stream && !each->destroyed && !each->is_default) {
      return each;
    }
  }
  if (!wants_default) return nullptr;
  auto made = std::make_shared<Stream>();
  made->context = current;
  made->is_default = true;
  all_.push_back(made);
  return made;
}

// What calls on the stream answer when its work can no longer run; 0: it can.
CUresult Streams::answer_of(const Stream& stream) {
  return closed_ ? CUDA_ERROR_DEINITIALIZED : stream.context->state();
}

bool Streams::is_done(const Ticket& ticket) {
  return ticket.stream == nullptr || ticket.stream->completed >= ticket.number ||
         answer_of(*ticket.stream) != CUDA_SUCCESS;
}

bool Streams::all_done(const std::vector<Ticket>& tickets) {
  for (const Ticket& ticket : tickets) {
    if (!is_done(ticket)) return false;
  }
  return true;
}

// The default stream runs after all that the context's blocking streams were given before, and the
// other way round.
void Streams::keep_in_order(const Stream& stream, Work* work) {
  if (!stream.is_default && !stream.blocking) return;
  for (const StreamPtr& other : all_) {
    if (other.get() == &stream || other->context != stream.context) continue;
    if (stream.is_default ? other->blocking : other->is_default) {
      if (other->completed < other->submitted) work->after.push_back({other, other->submitted});
    }
  }
}

CUresult Streams::submit(const StreamPtr& stream, const std::shared_ptr<Work>& work, bool wait) {
  MutexLock lock(mutex_);
  if (const CUresult code = answer_of(*stream)) return code;
  keep_in_order(*stream, work.get());
  work->number = ++stream->submitted;
  const bool at_once =
      work->kind == Work::Kind::kCopy && stream->queue.empty() && all_done(work->after);
  work->by_caller = wait || at_once;
  stream->queue.push_back(work);
  if (work->by_caller) return run_by_caller(lock, *stream, work);
  return start_serving(stream);
}

CUresult Streams::run_by_caller(MutexLock& lock, Stream& stream,
                                const std::shared_ptr<Work>& work) {
  while (stream.queue.front() != work) {
    if (const CUresult code = answer_of(stream)) {
      std::erase(stream.queue, work);
      return code;
    }
    changed_.wait(lock.native());
  }
  return run(lock, stream, work);
}

// Runs the front of the queue.
CUresult Streams::run(MutexLock& lock, Stream& stream, const std::shared_ptr<Work>& work) {
  while (answer_of(stream) == CUDA_SUCCESS && !all_done(work->after)) changed_.wait(lock.native());
  CUresult result = answer_of(stream);
  if (result == CUDA_SUCCESS) result = run_body(lock, stream, *work);
  stream.queue.pop_front();
  stream.completed = work->number;
  changed_.notify_all();
  return result;
}

CUresult Streams::run_body(MutexLock& lock, Stream& stream, Work& work) {
  // In flight before the body looks at the page table: an unmap either comes before that look or
  // finds the work here.
  work.running = true;
  changed_.notify_all();
  mutex_.unlock();
  CUresult result = work.body ? work.body() : CUDA_SUCCESS;
  mutex_.lock();
  while (work.kind == Work::Kind::kHold && result == CUDA_SUCCESS && !work.released &&
         answer_of(stream) == CUDA_SUCCESS) {
    changed_.wait(lock.native());
  }
  work.running = false;
  if (result == CUDA_ERROR_ILLEGAL_ADDRESS || (result != CUDA_SUCCESS && !work.by_caller)) {
    poison(stream.context, result);
  }
  const CUresult answer = answer_of(stream);
  return answer != CUDA_SUCCESS ? answer : result;
}

// Has a thread of the card's serve the stream until it is empty.
CUresult Streams::start_serving(const StreamPtr& stream) {
  if (stream->is_served) return CUDA_SUCCESS;
  if (idle_threads_ <= to_serve_.size()) {
    if (const CUresult code = start_thread()) {
      stream->queue.pop_back();
      --stream->submitted;
      return code;
    }
  }
  stream->is_served = true;
  to_serve_.push_back(stream);
  changed_.notify_all();
  return CUDA_SUCCESS;
}

CUresult Streams::start_thread() {
  // The process's signals are for threads that the program knows.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  CUresult result = CUDA_SUCCESS;
  try {
    std::thread([this] { serve(); }).detach();
  } catch (const std::system_error& error) {
    complain(std::string("stream thread: ") + error.what());
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

// A thread of the card's, to the end of the process.
void Streams::serve() {
  kvdrill_thread("card.stream");
  MutexLock lock(mutex_);
  for (;;) {
    ++idle_threads_;
    while (to_serve_.empty()) changed_.wait(lock.native());
    --idle_threads_;
    const StreamPtr stream = std::move(to_serve_.front());
    to_serve_.pop_front();
    while (!stream->queue.empty()) {
      const std::shared_ptr<Work> work = stream->queue.front();
      if (work->by_caller) {
        changed_.wait(lock.native());
      } else {
        run(lock, *stream, work);
      }
    }
    stream->is_served = false;
    forget_if_idle(stream);
  }
}

void Streams::poison(CUcontext context, CUresult condition) {
  unsigned fine = CUDA_SUCCESS;
  context->condition.compare_exchange_strong(fine, condition);
  changed_.notify_all();
}

CUresult Streams::await(MutexLock& lock, const Ticket& ticket) {
  if (ticket.stream == nullptr) return CUDA_SUCCESS;
  while (!is_done(ticket)) changed_.wait(lock.native());
  return answer_of(*ticket.stream);
}

CUresult Streams::synchronize(const StreamPtr& stream) {
  MutexLock lock(mutex_);
  return await(lock, {stream, stream->submitted});
}

CUresult Streams::query(const StreamPtr& stream) {
  const MutexLock lock(mutex_);
  if (const CUresult code = answer_of(*stream)) return code;
  return stream->completed < stream->submitted ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult Streams::synchronize(CUcontext context) {
  MutexLock lock(mutex_);
  std::vector<Ticket> tickets;
  for (const StreamPtr& stream : all_) {
    if (stream->context == context) tickets.push_back({stream, stream->submitted});
  }
  for (const Ticket& ticket : tickets) {
    if (const CUresult code = await(lock, ticket)) return code;
  }
  return closed_ ? CUDA_ERROR_DEINITIALIZED : context->state();
}

void Streams::unmapped(CUdeviceptr address, std::uint64_t size) {
  const MutexLock lock(mutex_);
  for (const StreamPtr& stream : all_) {
    if (stream->queue.empty() || !stream->queue.front()->running) continue;
    const Work& work = *stream->queue.front();
    const bool hit = std::any_of(work.uses.begin(), work.uses.end(), [&](const DeviceRange& range) {
      return overlap(range, address, size);
    });
    if (hit) poison(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

void Streams::end(CUcontext context, CUresult condition) {
  const MutexLock lock(mutex_);
  context->condition.store(condition);
  for (const StreamPtr& stream : std::vector<StreamPtr>(all_)) {
    if (stream->context != context) continue;
    stream->destroyed = true;
    forget_if_idle(stream);
  }
  changed_.notify_all();
}

void Streams::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

CUresult Streams::await_hold(const StreamPtr& stream) {
  MutexLock lock(mutex_);
  for (;;) {
    if (const CUresult code = answer_of(*stream)) return code;
    if (stream->queue.empty()) return CUDA_SUCCESS;
    const Work& front = *stream->queue.front();
    if (front.kind == Work::Kind::kHold && front.running) return CUDA_SUCCESS;
    changed_.wait(lock.native());
  }
}

void Streams::release_holds(const StreamPtr& stream) {
  const MutexLock lock(mutex_);
  for (const auto& work : stream->queue) work->released = true;
  changed_.notify_all();
}

}  // namespace kv::card
