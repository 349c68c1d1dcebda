// The part of the streams that deals in events: names for a moment in a stream.
#include "fakes/card/streams.h"

#include <memory>
#include <utility>

namespace kv::card {

CUevent Streams::create_event() {
  auto made = std::make_unique<Event>();
  const MutexLock lock(mutex_);
  const CUevent event = made.get();
  events_[event] = std::move(made);
  return event;
}

CUresult Streams::destroy_event(CUevent event) {
  const MutexLock lock(mutex_);
  return events_.erase(event) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult Streams::record(CUevent event, const StreamPtr& stream) {
  const MutexLock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult code = answer_of(*stream)) return code;
  found->second->ticket = {stream, stream->submitted};
  return CUDA_SUCCESS;
}

CUresult Streams::query(CUevent event) {
  const MutexLock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const Ticket& ticket = found->second->ticket;
  if (!is_done(ticket)) return CUDA_ERROR_NOT_READY;
  return ticket.stream == nullptr ? CUDA_SUCCESS : answer_of(*ticket.stream);
}

CUresult Streams::synchronize(CUevent event) {
  MutexLock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const Ticket ticket = found->second->ticket;
  return await(lock, ticket);
}

CUresult Streams::wait_for(CUevent event, const StreamPtr& stream) {
  auto work = std::make_shared<Work>();
  {
    const MutexLock lock(mutex_);
    const auto found = events_.find(event);
    if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
    work->after.push_back(found->second->ticket);
  }
  return submit(stream, work, false);
}

}  // namespace kv::card
