// The frames of the worker protocol: 4 bytes of big-endian length, then that many bytes of body.
// FrameReader takes a stream in whatever pieces arrive and gives its frames one by one.
//
// A small frame costs one read: want() offers room for more than the header at once, and what
// belongs to later frames is kept for them. A length is only a claim: memory grows with the bytes
// that really arrive, and all copying together is linear in them.
//
// Threads: a FrameReader belongs to one thread at a time.
// Ownership: it owns its buffer; what want() and body() show is valid until the next call on it.
#ifndef KVCORE_WIRE_FRAME_H_
#define KVCORE_WIRE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvcore/base/status.h"
#include "kvcore/wire/message.h"

namespace kv {

inline constexpr std::size_t kFrameHeader = 4;  // bytes
// A larger buffer is given back once its frame is done, so that one long frame does not cost its
// memory for the rest of the connection.
inline constexpr std::size_t kKeptRoom = 64u << 10;

// The frame around `body`. kInvalidArgument: the body is longer than a length can say (2^31 - 1).
Result<std::string> encode_frame(std::string_view body);
// The same without a copy: writes the length of what follows the first kFrameHeader bytes of
// `frame` into them. kInvalidArgument also when the frame is shorter than its header.
Status seal_frame(std::string& frame);

// The frame of a message's pickle. Errors: encode_pickle's and seal_frame's.
Result<std::string> frame_message(const Message& message);

class FrameReader {
 public:
  enum class State : std::uint8_t {
    kHeader,    // have() of 4 bytes are there (0: between frames)
    kBody,      // have() of size() bytes are there
    kComplete,  // body() is a whole frame
    kFailed,    // the stream is lost; got() or next() said why
  };
  // Room to read into; never empty.
  struct Part {
    char* data;
    std::size_t size;
  };

  // Frames with a body over `max_body` bytes fail (kProtocol), as do negative lengths (2^31 and
  // up).
  explicit FrameReader(std::uint32_t max_body);
  FrameReader(FrameReader&&) noexcept = default;
  FrameReader& operator=(FrameReader&&) noexcept = default;

  // Where to read into, and at most how much. Not while complete (call next() first) or failed.
  // kOutOfMemory: nothing has changed.
  Result<Part> want();
  // `n` bytes were read there. kProtocol: the length is not allowed.
  Status got(std::size_t n);

  State state() const { return state_; }
  bool complete() const { return state_ == State::kComplete; }
  // Bytes of the current part (header or body) that are there.
  std::size_t have() const;
  // Bytes of the current frame's body as its header claims; 0 while in the header.
  std::size_t size() const { return size_; }
  // The whole frame's body; empty unless complete.
  std::string_view body() const;
  // Leaves the frame behind. Bytes of the next one that are there already count at once, so it may
  // be complete, or kProtocol as in got(). Only when complete.
  Status next();

 private:
  std::size_t buffered() const { return end_ - begin_; }
  Status advance();
  bool make_room();

  std::uint32_t max_body_;
  State state_ = State::kHeader;
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;  // of the current frame's header, in the buffer
  std::size_t end_ = 0;    // of what was read
  std::size_t size_ = 0;
};

}  // namespace kv

#endif  // KVCORE_WIRE_FRAME_H_
