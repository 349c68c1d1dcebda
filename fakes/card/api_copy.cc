// Exported calls: copies and fills.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fakes/card/calls.h"
#include "fakes/card/cuda_abi.h"

namespace kv::card {
namespace {

// A copy or a fill, as it was asked for.
struct Copy {
  CUdeviceptr to = 0, from = 0;     // device addresses, or 0
  char* host_to = nullptr;          // to the host
  const char* host_from = nullptr;  // from the host
  std::uint32_t value = 0;          // a fill, when neither source is set
  unsigned width = 0;
  std::uint64_t size = 0;
};

using Pieces = std::vector<Piece>;

bool translate(Card& card, const Copy& copy, int device, Pieces* to, Pieces* from) {
  return (copy.to == 0 || card.space.pieces(copy.to, copy.size, device, true, to)) &&
         (copy.from == 0 || card.space.pieces(copy.from, copy.size, device, false, from));
}

CUresult from_device(Card& card, const Copy& copy, const Pieces& from) {
  char* host = copy.host_to;
  for (const Piece& piece : from) {
    if (const CUresult code = card.memory.read(piece.offset, host, piece.size)) return code;
    host += piece.size;
  }
  return CUDA_SUCCESS;
}

CUresult to_device(Card& card, const Copy& copy, const Pieces& to) {
  const char* host = copy.host_from;
  for (const Piece& piece : to) {
    const CUresult code = host != nullptr
                              ? card.memory.write(piece.offset, host, piece.size)
                              : card.memory.fill(piece.offset, copy.value, copy.width, piece.size);
    if (code != CUDA_SUCCESS) return code;
    if (host != nullptr) host += piece.size;
  }
  return CUDA_SUCCESS;
}

CUresult between(Card& card, const Pieces& to, const Pieces& from) {
  std::size_t source = 0;
  std::uint64_t skipped = 0;  // of the source piece
  for (const Piece& piece : to) {
    for (std::uint64_t done = 0; done < piece.size;) {
      const Piece& read = from[source];
      const std::uint64_t part = std::min(piece.size - done, read.size - skipped);
      const CUresult code = card.memory.copy(piece.offset + done, read.offset + skipped, part);
      if (code != CUDA_SUCCESS) return code;
      done += part;
      skipped += part;
      if (skipped == read.size) {
        ++source;
        skipped = 0;
      }
    }
  }
  return CUDA_SUCCESS;
}

// The work itself, when its turn has come: the page table is looked up then, and what is no longer
// mapped kills it.
CUresult carry_out(Card& card, const Copy& copy, int device) {
  Pieces to, from;
  if (!translate(card, copy, device, &to, &from)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (copy.to == 0) return from_device(card, copy, from);
  if (copy.from == 0) return to_device(card, copy, to);
  return between(card, to, from);
}

CUresult submit(Card& card, CUcontext context, const Copy& copy, CUstream stream, bool wait) {
  const StreamPtr queue = card.streams.find(stream, context);
  if (queue == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (copy.size == 0) return CUDA_SUCCESS;
  Pieces to, from;
  if (!translate(card, copy, context->device, &to, &from)) return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<Work>();
  work->uses = {{copy.to, copy.to != 0 ? copy.size : 0},
                {copy.from, copy.from != 0 ? copy.size : 0}};
  work->body = [&card, copy, device = context->device] { return carry_out(card, copy, device); };
  return card.streams.submit(queue, work, wait);
}

// A copy that returns when it is done.
CUresult copy_now(Call call, const Copy& copy) {
  return call_in_context(
      call, key_of(copy.to != 0 ? copy.to : copy.from),
      [&](Card& card, CUcontext context) { return submit(card, context, copy, nullptr, true); });
}

CUresult copy_later(Call call, const Copy& copy, CUstream stream) {
  return call_in_context(
      call, key_of(copy.to != 0 ? copy.to : copy.from),
      [&](Card& card, CUcontext context) { return submit(card, context, copy, stream, false); });
}

Copy host_to_device(CUdeviceptr to, const void* from, std::size_t size) {
  Copy copy;
  copy.to = to;
  copy.host_from = static_cast<const char*>(from);
  copy.size = size;
  return copy;
}

Copy device_to_host(void* to, CUdeviceptr from, std::size_t size) {
  Copy copy;
  copy.from = from;
  copy.host_to = static_cast<char*>(to);
  copy.size = size;
  return copy;
}

Copy device_to_device(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  Copy copy;
  copy.to = to;
  copy.from = from;
  copy.size = size;
  return copy;
}

Copy filling(CUdeviceptr to, std::uint32_t value, unsigned width, std::size_t count) {
  Copy copy;
  copy.to = to;
  copy.value = value;
  copy.width = width;
  copy.size = std::uint64_t{count} * width;
  return copy;
}

}  // namespace

KVCARD_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t size) {
  return copy_now(Call::cuMemcpyHtoD, host_to_device(to, from, size));
}
KVCARD_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t size) {
  return copy_now(Call::cuMemcpyDtoH, device_to_host(to, from, size));
}
KVCARD_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  return copy_now(Call::cuMemcpyDtoD, device_to_device(to, from, size));
}
KVCARD_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count) {
  return copy_now(Call::cuMemsetD8, filling(to, value, 1, count));
}
KVCARD_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t count) {
  return copy_now(Call::cuMemsetD32, filling(to, value, 4, count));
}

KVCARD_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t size,
                                         CUstream stream) {
  return copy_later(Call::cuMemcpyHtoDAsync, host_to_device(to, from, size), stream);
}
KVCARD_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size,
                                         CUstream stream) {
  return copy_later(Call::cuMemcpyDtoHAsync, device_to_host(to, from, size), stream);
}
KVCARD_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size,
                                         CUstream stream) {
  return copy_later(Call::cuMemcpyDtoDAsync, device_to_device(to, from, size), stream);
}
KVCARD_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count,
                                    CUstream stream) {
  return copy_later(Call::cuMemsetD8Async, filling(to, value, 1, count), stream);
}
KVCARD_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count,
                                     CUstream stream) {
  return copy_later(Call::cuMemsetD32Async, filling(to, value, 4, count), stream);
}

}  // namespace kv::card
