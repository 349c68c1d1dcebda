// Writes Python's pickle, for the few kinds that the worker protocol holds: what CPython 3.8 and
// later write at protocol 4, byte for byte, with their frames of 64 KiB, batches of 1,000 items,
// and memo. What CPython finds in its memo depends on object identity; here two texts are one
// object when CPython cannot help sharing them: the empty text and texts of one Latin-1 character,
// and equal keys, as its JSON reader and its compiler intern them.
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>

#include "harness/wire/wire.h"
#include "harness/wire/wire_pickle_ops.h"

namespace kv::drill {

namespace {

constexpr std::size_t kFrameTarget = 64 * 1024;
constexpr std::size_t kFrameLeast = 4;  // shorter ones get no frame
constexpr std::size_t kFrameHeader = 9;
constexpr std::size_t kBatch = 1000;

class Pickler {
 public:
  std::string run(const Value& value) {
    out_ = {static_cast<char>(kProto), 4};
    framing_ = true;
    save(value);
    put(kStop);
    end_frame();
    return std::move(out_);
  }

 private:
  void write(std::string_view bytes) {
    if (framing_ && frame_ == kNoFrame) {
      frame_ = out_.size();
      out_.append(kFrameHeader, '\0');
    }
    out_.append(bytes);
  }
  void put(unsigned char op) {
    const char byte = static_cast<char>(op);
    write({&byte, 1});
  }
  // An opcode and its operand of `size` bytes, little endian.
  void put(unsigned char op, std::uint64_t operand, int size) {
    char bytes[9] = {static_cast<char>(op)};
    for (int i = 0; i < size; ++i) bytes[1 + i] = static_cast<char>(operand >> (8 * i));
    write({bytes, static_cast<std::size_t>(1 + size)});
  }
  void end_frame() {
    if (frame_ == kNoFrame) return;
    const std::size_t length = out_.size() - frame_ - kFrameHeader;
    if (length < kFrameLeast) {
      out_.erase(frame_, kFrameHeader);
    } else {
      out_[frame_] = static_cast<char>(kFrame);
      for (int i = 0; i < 8; ++i) {
        out_[frame_ + 1 + i] = static_cast<char>(std::uint64_t{length} >> (8 * i));
      }
    }
    frame_ = kNoFrame;
  }

  void save(const Value& value) {
    if (frame_ != kNoFrame && out_.size() - frame_ - kFrameHeader >= kFrameTarget) end_frame();
    if (const auto* truth = std::get_if<bool>(&value.data)) {
      put(*truth ? kNewTrue : kNewFalse);
    } else if (const auto* number = std::get_if<std::int64_t>(&value.data)) {
      save_number(*number);
    } else if (const auto* real = std::get_if<double>(&value.data)) {
      put(kBinFloat, __builtin_bswap64(std::bit_cast<std::uint64_t>(*real)), 8);
    } else if (const auto* text = std::get_if<std::string>(&value.data)) {
      save_text(*text, false);
    } else if (const auto* list = std::get_if<Value::List>(&value.data)) {
      save_list(*list);
    } else if (const auto* fields = std::get_if<Value::Dict>(&value.data)) {
      save_dict(*fields);
    } else {
      put(kNone);
    }
  }

  void save_number(std::int64_t number) {
    if (number >= 0 && number <= 0xff) return put(kBinInt1, static_cast<std::uint64_t>(number), 1);
    if (number >= 0 && number <= 0xffff) {
      return put(kBinInt2, static_cast<std::uint64_t>(number), 2);
    }
    if (number >= std::numeric_limits<std::int32_t>::min() &&
        number <= std::numeric_limits<std::int32_t>::max()) {
      return put(kBinInt, static_cast<std::uint64_t>(number), 4);
    }
    int size = 8;  // the fewest bytes whose top bit is still the sign
    while (size > 1 && number >> (8 * (size - 1) - 1) == (number < 0 ? -1 : 0)) --size;
    char bytes[10] = {static_cast<char>(kLong1), static_cast<char>(size)};
    for (int i = 0; i < size; ++i) bytes[2 + i] = static_cast<char>(number >> (8 * i));
    write({bytes, static_cast<std::size_t>(2 + size)});
  }

  // CPython keeps one object for each of these texts.
  static bool is_single(std::string_view text) {
    if (text.size() <= 1) return true;
    const auto lead = static_cast<unsigned char>(text[0]);
    return text.size() == 2 && (lead == 0xc2 || lead == 0xc3);
  }

  void save_text(const std::string& text, bool is_key) {
    const bool shared = is_key || is_single(text);
    auto& memo = is_single(text) ? singles_ : keys_;
    if (shared) {
      if (const auto found = memo.find(text); found != memo.end()) {
        return found->second <= 0xff ? put(kBinGet, found->second, 1)
                                     : put(kLongBinGet, found->second, 4);
      }
    }
    const bool large = text.size() >= kFrameTarget;  // stands outside of frames
    if (large) end_frame();
    framing_ = !large;
    if (text.size() <= 0xff) {
      put(kShortBinUnicode, text.size(), 1);
    } else if (text.size() <= 0xffffffffu) {
      put(kBinUnicode, text.size(), 4);
    } else {
      put(kBinUnicode8, text.size(), 8);
    }
    write(text);
    framing_ = true;
    if (shared) memo.emplace(text, memoized_);
    memoize();
  }
  void memoize() {
    put(kMemoize);
    ++memoized_;
  }

  void save_list(const Value::List& list) {
    put(kEmptyList);
    memoize();
    if (list.size() == 1) {
      save(list[0]);
      return put(kAppend);
    }
    for (std::size_t done = 0; done < list.size();) {
      put(kMark);
      for (std::size_t i = 0; i < kBatch && done < list.size(); ++i) save(list[done++]);
      put(kAppends);
    }
  }
  void save_field(const std::pair<std::string, Value>& field) {
    if (frame_ != kNoFrame && out_.size() - frame_ - kFrameHeader >= kFrameTarget) end_frame();
    save_text(field.first, true);
    save(field.second);
  }
  void save_dict(const Value::Dict& fields) {
    put(kEmptyDict);
    memoize();
    if (fields.empty()) return;
    if (fields.size() == 1) {
      save_field(fields[0]);
      return put(kSetItem);
    }
    // Unlike lists, a dictionary of a whole number of batches ends with an empty one.
    for (std::size_t done = 0, batch = kBatch; batch == kBatch;) {
      put(kMark);
      for (batch = 0; batch < kBatch && done < fields.size(); ++batch) save_field(fields[done++]);
      put(kSetItems);
    }
  }

  static constexpr std::size_t kNoFrame = std::numeric_limits<std::size_t>::max();
  std::string out_;
  bool framing_ = false;
  std::size_t frame_ = kNoFrame;  // where the open frame's header is
  std::uint32_t memoized_ = 0;
  std::unordered_map<std::string, std::uint32_t> keys_, singles_;
};

}  // namespace

std::string pickle(const Value& value) {
  return Pickler().run(value);
}

}  // namespace kv::drill
