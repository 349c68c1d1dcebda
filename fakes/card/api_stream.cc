// Exported calls: streams, events, host functions, and the card's own controls over work in flight.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fakes/card/calls.h"
#include "fakes/card/cuda_abi.h"
#include "fakes/card/kvcard.h"
#include "fakes/card/tear.h"

namespace kv::card {
namespace {

// Runs a call on a stream: body(Streams&, const StreamPtr&).
template <typename Body>
CUresult call_on_stream(Call call, CUstream stream, Body body) {
  return call_in_context(call, key_of(stream), [&](Card& card, CUcontext context) {
    const StreamPtr found = card.streams.find(stream, context);
    return found == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(card.streams, found);
  });
}

// The stream that a control means; it is no call of the driver and so no moment of the drill.
CUresult control(void* stream, Card** card, StreamPtr* found) {
  if (const CUresult code = card_if_up(card)) return code;
  const CUcontext context = Contexts::current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *found = (*card)->streams.find(static_cast<CUstream>(stream), context);
  return *found == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

KVCARD_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return call_in_context(Call::cuStreamCreate, flags, [&](Card& card, CUcontext context) {
    if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return card.streams.create(context, (flags & CU_STREAM_NON_BLOCKING) == 0, stream);
  });
}

KVCARD_API CUresult cuStreamDestroy_v2(CUstream stream) {
  return call_card(Call::cuStreamDestroy, key_of(stream),
                   [&](Card& card) { return card.streams.destroy(stream); });
}

KVCARD_API CUresult cuStreamSynchronize(CUstream stream) {
  return call_on_stream(
      Call::cuStreamSynchronize, stream,
      [](Streams& streams, const StreamPtr& found) { return streams.synchronize(found); });
}

KVCARD_API CUresult cuStreamQuery(CUstream stream) {
  return call_on_stream(Call::cuStreamQuery, stream, [](Streams& streams, const StreamPtr& found) {
    return streams.query(found);
  });
}

KVCARD_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned /*flags*/) {
  return call_on_stream(
      Call::cuStreamWaitEvent, stream,
      [event](Streams& streams, const StreamPtr& found) { return streams.wait_for(event, found); });
}

KVCARD_API CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return call_in_context(Call::cuEventCreate, flags, [&](Card& card, CUcontext) {
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *event = card.streams.create_event();
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call_on_stream(
      Call::cuEventRecord, stream,
      [event](Streams& streams, const StreamPtr& found) { return streams.record(event, found); });
}

KVCARD_API CUresult cuEventQuery(CUevent event) {
  return call_card(Call::cuEventQuery, key_of(event),
                   [&](Card& card) { return card.streams.query(event); });
}

KVCARD_API CUresult cuEventSynchronize(CUevent event) {
  return call_card(Call::cuEventSynchronize, key_of(event),
                   [&](Card& card) { return card.streams.synchronize(event); });
}

KVCARD_API CUresult cuEventDestroy_v2(CUevent event) {
  return call_card(Call::cuEventDestroy, key_of(event),
                   [&](Card& card) { return card.streams.destroy_event(event); });
}

KVCARD_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user) {
  return call_on_stream(Call::cuLaunchHostFunc, stream,
                        [&](Streams& streams, const StreamPtr& found) {
                          if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
                          auto work = std::make_shared<Work>();
                          work->kind = Work::Kind::kHostFunction;
                          work->body = [function, user] {
                            function(user);
                            return CUDA_SUCCESS;
                          };
                          return streams.submit(found, work, false);
                        });
}

KVCARD_API unsigned kvcardHoldStream(void* stream, unsigned long long address, std::size_t size) {
  Card* card = nullptr;
  StreamPtr found;
  if (const CUresult code = control(stream, &card, &found)) return code;
  auto work = std::make_shared<Work>();
  work->kind = Work::Kind::kHold;
  work->uses = {{address, size}};
  work->body = [card, address, size, device = found->context->device] {
    std::vector<Piece> pieces;
    return card->space.pieces(address, size, device, false, &pieces) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  return card->streams.submit(found, work, false);
}

KVCARD_API unsigned kvcardAwaitHold(void* stream) {
  Card* card = nullptr;
  StreamPtr found;
  if (const CUresult code = control(stream, &card, &found)) return code;
  return card->streams.await_hold(found);
}

KVCARD_API unsigned kvcardReleaseStream(void* stream) {
  Card* card = nullptr;
  StreamPtr found;
  if (const CUresult code = control(stream, &card, &found)) return code;
  card->streams.release_holds(found);
  return CUDA_SUCCESS;
}

KVCARD_API unsigned kvcardTearAfter(unsigned count) {
  tear_at.store(count);
  return tears_passed.exchange(0);
}

}  // namespace kv::card
