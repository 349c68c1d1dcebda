#include "kvcore/wire/frame.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>

#include "kvcore/wire/pickle.h"

namespace kv {
namespace {

// Holds every usual request and reply whole.
constexpr std::size_t kFirstRoom = 4096;

constexpr std::size_t kLongestBody = std::numeric_limits<std::int32_t>::max();

void put_length(char* to, std::size_t length) {
  to[0] = static_cast<char>(length >> 24 & 0xff);
  to[1] = static_cast<char>(length >> 16 & 0xff);
  to[2] = static_cast<char>(length >> 8 & 0xff);
  to[3] = static_cast<char>(length & 0xff);
}

std::uint32_t get_length(const char* from) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kFrameHeader; ++i) {
    length = length << 8 | static_cast<unsigned char>(from[i]);
  }
  return length;
}

Status too_long(std::size_t length) {
  return Status::error(
      Code::kInvalidArgument, "frame.encode", "body", 0,
      std::to_string(length) + " bytes; a length can say at most " + std::to_string(kLongestBody));
}

}  // namespace

Result<std::string> encode_frame(std::string_view body) {
  if (body.size() > kLongestBody) return too_long(body.size());
  try {
    std::string frame;
    frame.reserve(kFrameHeader + body.size());
    frame.resize(kFrameHeader);
    put_length(frame.data(), body.size());
    frame.append(body);
    return frame;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "frame.encode", "body");
  }
}

Status seal_frame(std::string& frame) {
  if (frame.size() < kFrameHeader) {
    return Status::error(Code::kInvalidArgument, "frame.seal", "frame", 0,
                         "no room for its header");
  }
  const std::size_t body = frame.size() - kFrameHeader;
  if (body > kLongestBody) return too_long(body);
  put_length(frame.data(), body);
  return {};
}

Result<std::string> frame_message(const Message& message) {
  std::string frame(kFrameHeader, '\0');
  KV_RETURN_IF_ERROR(append_pickle(message, frame));
  KV_RETURN_IF_ERROR(seal_frame(frame));
  return frame;
}

FrameReader::FrameReader(std::uint32_t max_body) : max_body_(max_body) {}

std::size_t FrameReader::have() const {
  switch (state_) {
    case State::kHeader:
      return buffered();
    case State::kBody:
      return buffered() - kFrameHeader;
    case State::kComplete:
      return size_;
    case State::kFailed:
      break;
  }
  return 0;
}

std::string_view FrameReader::body() const {
  if (!complete()) return {};
  return {buffer_.get() + begin_ + kFrameHeader, size_};
}

bool FrameReader::make_room() {
  const std::size_t kept = buffered();
  const std::size_t needed = kFrameHeader + size_;
  if (needed <= capacity_) {
    // The rest of the frame fits once it lies in front: one move a frame, of less than a frame.
    std::memmove(buffer_.get(), buffer_.get() + begin_, kept);
  } else {
    // By doubling, up to the frame: a claimed length costs nothing before its bytes are there.
    const std::size_t larger = std::max(kFirstRoom, std::min(capacity_ * 2, needed));
    std::unique_ptr<char[]> fresh(new (std::nothrow) char[larger]);
    if (fresh == nullptr) return false;
    if (kept > 0) std::memcpy(fresh.get(), buffer_.get() + begin_, kept);
    buffer_ = std::move(fresh);
    capacity_ = larger;
  }
  begin_ = 0;
  end_ = kept;
  return true;
}

Result<FrameReader::Part> FrameReader::want() {
  assert(state_ == State::kHeader || state_ == State::kBody);
  if (buffered() == 0) begin_ = end_ = 0;
  if (end_ == capacity_ && !make_room()) {
    return Status::error(Code::kOutOfMemory, "frame.read", "buffer", 0,
                         "for a frame of " + std::to_string(size_) + " bytes");
  }
  return Part{buffer_.get() + end_, capacity_ - end_};
}

Status FrameReader::got(std::size_t n) {
  assert(n <= capacity_ - end_);
  end_ += n;
  return advance();
}

Status FrameReader::advance() {
  if (state_ == State::kHeader && buffered() >= kFrameHeader) {
    const std::uint32_t length = get_length(buffer_.get() + begin_);
    if (length > max_body_ || length > kLongestBody) {
      state_ = State::kFailed;
      return Status::error(Code::kProtocol, "frame.read", "length", 0,
                           std::to_string(static_cast<std::int32_t>(length)) +
                               " bytes; expected 0 to " + std::to_string(max_body_));
    }
    size_ = length;
    state_ = State::kBody;
  }
  if (state_ == State::kBody && buffered() - kFrameHeader >= size_) state_ = State::kComplete;
  return {};
}

Status FrameReader::next() {
  assert(complete());
  begin_ += kFrameHeader + size_;
  size_ = 0;
  state_ = State::kHeader;
  if (buffered() == 0) {
    begin_ = end_ = 0;
    if (capacity_ > kKeptRoom) {
      buffer_.reset();
      capacity_ = 0;
    }
  }
  return advance();
}

}  // namespace kv
