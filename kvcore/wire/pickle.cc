#include "kvcore/wire/pickle.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "kvcore/wire/pickle_format.h"

namespace kv {
namespace pickle {

std::optional<std::size_t> first_bad_utf8(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t i = 0;
  while (i < text.size()) {
    if (text.size() - i >= 8) {
      std::uint64_t eight;
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i <= more) return i;
    // The second byte's range rules out long forms, surrogates and what lies above U+10FFFF.
    const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i + 1) < low || byte(i + 1) > high) return i;
    for (std::size_t k = 2; k <= more; ++k) {
      if (byte(i + k) < 0x80 || byte(i + k) > 0xbf) return i;
    }
    i += more + 1;
  }
  return std::nullopt;
}

}  // namespace pickle

namespace {

using namespace pickle;  // NOLINT: the opcodes

// CPython's own sizes: a frame is closed at the first value after its 64 KiB are full, a text of
// that size lies outside of frames, fewer than 4 bytes get no frame, items go in batches.
constexpr std::size_t kFrameTarget = 64u << 10;
constexpr std::size_t kFrameMinimum = 4;
constexpr std::size_t kFrameOpSize = 9;
constexpr std::size_t kBatch = 1000;
// Room for a usual message, so that it is written without growing.
constexpr std::size_t kUsualSize = 256;

class Encoder {
 public:
  explicit Encoder(std::string& out) : out_(out) {}

  Status message(const Message& message) {
    out_.push_back(static_cast<char>(kProto));
    out_.push_back(4);
    if (!dict(message, 1)) return error_;
    op(kStop);
    close_frame();
    return {};
  }

 private:
  static constexpr std::size_t kNoFrame = std::string::npos;

  void op(Op code) {
    if (frame_ == kNoFrame) {
      frame_ = out_.size();
      out_.append(kFrameOpSize, '\0');
    }
    out_.push_back(static_cast<char>(code));
  }

  void little_endian(std::uint64_t value, std::size_t bytes) {
    char raw[8];
    for (std::size_t i = 0; i < bytes; ++i) raw[i] = static_cast<char>(value >> (8 * i) & 0xff);
    out_.append(raw, bytes);
  }

  std::size_t frame_size() const { return out_.size() - frame_ - kFrameOpSize; }

  void close_frame() {
    if (frame_ == kNoFrame) return;
    const std::size_t size = frame_size();
    if (size < kFrameMinimum) {
      out_.erase(frame_, kFrameOpSize);
    } else {
      out_[frame_] = static_cast<char>(kFrame);
      for (std::size_t i = 0; i < 8; ++i) {
        out_[frame_ + 1 + i] = static_cast<char>(size >> (8 * i) & 0xff);
      }
    }
    frame_ = kNoFrame;
  }

  // Before each value.
  void boundary() {
    if (frame_ != kNoFrame && frame_size() >= kFrameTarget) close_frame();
  }

  bool fail(const std::string& text) {
    error_ = Status::error(Code::kInvalidArgument, "pickle.encode", "message", 0, text);
    return false;
  }

  void integer(std::int64_t value) {
    if (value >= 0 && value <= 0xff) {
      op(kBinInt1);
      little_endian(static_cast<std::uint64_t>(value), 1);
    } else if (value >= 0 && value <= 0xffff) {
      op(kBinInt2);
      little_endian(static_cast<std::uint64_t>(value), 2);
    } else if (value == static_cast<std::int32_t>(value)) {
      op(kBinInt);
      little_endian(static_cast<std::uint64_t>(value), 4);
    } else {
      std::size_t bytes = 5;  // the fewest whose top bit is the sign
      while (bytes < 8 && value >> (8 * bytes - 1) != value >> 63) ++bytes;
      op(kLong1);
      out_.push_back(static_cast<char>(bytes));
      little_endian(static_cast<std::uint64_t>(value), bytes);
    }
  }

  bool text(std::string_view text) {
    if (const auto bad = first_bad_utf8(text)) {
      return fail("a text is not UTF-8 at its byte " + std::to_string(*bad));
    }
    if (text.size() <= 0xff) {
      op(kShortBinUnicode);
      little_endian(text.size(), 1);
      out_.append(text);
    } else {
      const bool outside = text.size() >= kFrameTarget;
      const bool wide = text.size() > 0xffffffff;
      const Op code = wide ? kBinUnicode8 : kBinUnicode;
      if (outside) {
        close_frame();
        out_.push_back(static_cast<char>(code));
      } else {
        op(code);
      }
      little_endian(text.size(), wide ? 8 : 4);
      out_.append(text);
    }
    op(kMemoize);
    return true;
  }

  // One item alone, or batches of up to kBatch items behind a mark.
  template <typename Items, typename Save>
  bool batches(const Items& items, Op one, Op many, const Save& save) {
    if (items.size() == 1) {
      if (!save(items.front())) return false;
      op(one);
      return true;
    }
    for (std::size_t i = 0; i < items.size();) {
      op(kMark);
      const std::size_t end = std::min(items.size(), i + kBatch);
      for (; i < end; ++i) {
        if (!save(items[i])) return false;
      }
      op(many);
    }
    return true;
  }

  bool dict(const Value::Dict& dict, int depth) {
    if (depth > kPickleDepth) return too_deep();
    op(kEmptyDict);
    op(kMemoize);
    return batches(dict, kSetItem, kSetItems, [this, depth](const auto& item) {
      boundary();
      return text(item.first) && value(item.second, depth);
    });
  }

  bool list(const Value::List& list, int depth) {
    if (depth > kPickleDepth) return too_deep();
    op(kEmptyList);
    op(kMemoize);
    return batches(list, kAppend, kAppends,
                   [this, depth](const Value& item) { return value(item, depth); });
  }

  bool too_deep() { return fail("nested deeper than " + std::to_string(kPickleDepth) + " levels"); }

  bool value(const Value& value, int depth) {
    boundary();
    if (const std::string* held = value.as_text()) return text(*held);
    if (const Value::List* held = value.as_list()) return list(*held, depth + 1);
    if (const Value::Dict* held = value.as_dict()) return dict(*held, depth + 1);
    if (const std::int64_t* held = value.as_int()) {
      integer(*held);
    } else if (const bool* held_bool = value.as_bool()) {
      op(*held_bool ? kNewTrue : kNewFalse);
    } else {
      op(kNone);
    }
    return true;
  }

  std::string& out_;
  std::size_t frame_ = kNoFrame;
  Status error_;
};

}  // namespace

Status append_pickle(const Message& message, std::string& out) {
  const std::size_t before = out.size();
  Status status;
  try {
    out.reserve(before + kUsualSize);
    status = Encoder(out).message(message);
  } catch (const std::bad_alloc&) {
    status = Status::error(Code::kOutOfMemory, "pickle.encode", "message");
  }
  if (!status.ok()) out.resize(before);
  return status;
}

std::string encodable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (;;) {
    const auto bad = pickle::first_bad_utf8(text);
    out += text.substr(0, bad.value_or(text.size()));
    if (!bad) return out;
    const auto byte = static_cast<unsigned char>(text[*bad]);
    out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    text.remove_prefix(*bad + 1);
  }
}

Result<std::string> encode_pickle(const Message& message) {
  std::string out;
  KV_RETURN_IF_ERROR(append_pickle(message, out));
  return out;
}

}  // namespace kv
