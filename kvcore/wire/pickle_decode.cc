#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory_resource>
#include <new>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "kvcore/wire/pickle.h"
#include "kvcore/wire/pickle_format.h"

// Reading goes in two passes. The first runs the opcodes over an arena of plain nodes, where a
// reference is an index: it is what Python's machine does, without making anything. The second
// copies the arena into values, and there the limits on depth and repeats decide; so cycles and
// bombs are refused by the same two counters as honest nesting, before anything is made of them.

namespace kv {
namespace {

using namespace pickle;  // NOLINT: the opcodes

enum class Kind : std::uint8_t { kNone, kBool, kInt, kText, kList, kTuple, kDict };

const char* kind_name(Kind kind) {
  static constexpr std::array kNames = {"none",   "a truth value", "an integer",  "a text",
                                        "a list", "a tuple",       "a dictionary"};
  return kNames[static_cast<std::size_t>(kind)];
}

constexpr std::uint32_t kNoLink = 0xffffffff;

struct Children {
  std::uint32_t first, last, count;  // links; a dictionary's are key, value, key, value
};
struct Span {
  std::uint32_t begin, size;  // in the body
};
struct Node {
  Kind kind;
  std::uint32_t at;  // byte of its opcode
  union {
    std::int64_t integer;  // also a truth value
    Span text;
    Children children;
  };
};
struct Link {
  std::uint32_t node, next;
};

class Decoder {
 public:
  explicit Decoder(std::string_view body) : body_(body), limit_(body.size()) {
    // A usual message has a value in 5 bytes; more only costs a move.
    const std::size_t values = std::clamp<std::size_t>(body.size() / 5, 16, 1u << 16);
    nodes_.reserve(values);
    links_.reserve(values);
    stack_.reserve(std::min<std::size_t>(values, 1024));
    memo_.reserve(16);
    marks_.reserve(4);
  }

  Result<Message> message() {
    Message message;
    if (!run() || !check_top() || !fill_dict(nodes_[stack_.back()], 1, &message)) return error_;
    return message;
  }

 private:
  bool fail(std::size_t at, std::string_view text) {
    error_ = Status::error(Code::kProtocol, "pickle.decode", "byte " + std::to_string(at), 0, text);
    return false;
  }

  // ---- first pass

  bool run() {
    if (body_.size() > 0x7fffffff) return fail(0, "the body is longer than any message");
    if (!need(2)) return false;
    if (peek() != kProto) return fail(0, "expected a protocol opcode (0x80)");
    at_ = pos_++;
    const unsigned char version = byte();
    if (version < 2 || version > 5) {
      return fail(1, "protocol " + std::to_string(version) + "; expected 2 to 5");
    }
    for (;;) {
      if (pos_ == limit_) {  // the frame, if there was one, is used up
        limit_ = body_.size();
        in_frame_ = false;
      }
      at_ = pos_;
      if (!need(1)) return false;
      const unsigned char code = byte();
      if (code == kStop) break;
      if (!execute(code)) return false;
      if (std::max({nodes_.size(), links_.size(), stack_.size()}) > kPickleValues) {
        return fail(at_, "more than " + std::to_string(kPickleValues) + " values");
      }
    }
    if (pos_ != body_.size()) {
      return fail(pos_, std::to_string(body_.size() - pos_) + " bytes follow the message's end");
    }
    return true;
  }

  bool execute(unsigned char code) {
    switch (code) {
      case kEmptyDict:
        return push_container(Kind::kDict);
      case kEmptyList:
        return push_container(Kind::kList);
      case kEmptyTuple:
        return push_container(Kind::kTuple);
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return make_tuple(code - kTuple1 + 1u);
      case kTuple:
        return pop_mark(0) && make_tuple(stack_.size() - floor_after_mark_);
      case kMark:
        return push_mark();
      case kAppend:
        return above_mark(2) && add(Kind::kList, 1);
      case kAppends:
        return pop_mark(1) && add(Kind::kList, stack_.size() - floor_after_mark_);
      case kSetItem:
        return above_mark(3) && add(Kind::kDict, 2);
      case kSetItems:
        return pop_mark(1) && add(Kind::kDict, stack_.size() - floor_after_mark_);
      case kMemoize:
        return put(memo_.size());
      case kBinPut:
        return need(1) && put(byte());
      case kLongBinPut:
        return need(4) && put(little_endian(4));
      case kBinGet:
        return need(1) && get(byte());
      case kLongBinGet:
        return need(4) && get(little_endian(4));
      case kShortBinUnicode:
        return need(1) && push_text(byte());
      case kBinUnicode:
        return need(4) && push_text(little_endian(4));
      case kBinUnicode8:
        return need(8) && push_text(little_endian(8));
      default:
        return execute_scalar(code);
    }
  }

  bool execute_scalar(unsigned char code) {
    switch (code) {
      case kNone:
        return push_integer(Kind::kNone, 0);
      case kNewTrue:
        return push_integer(Kind::kBool, 1);
      case kNewFalse:
        return push_integer(Kind::kBool, 0);
      case kBinInt:
        return need(4) && push_integer(Kind::kInt, static_cast<std::int32_t>(little_endian(4)));
      case kBinInt1:
        return need(1) && push_integer(Kind::kInt, byte());
      case kBinInt2:
        return need(2) && push_integer(Kind::kInt, static_cast<std::int64_t>(little_endian(2)));
      case kLong1:
        return need(1) && push_long(byte());
      case kFrame:
        return need(8) && begin_frame(little_endian(8));
      case kBinFloat:
        return fail(at_, "a number with a point; expected an integer");
      default:
        break;
    }
    char text[80];
    std::snprintf(text, sizeof text, "opcode 0x%02x; expected one of plain values", code);
    return fail(at_, text);
  }

  unsigned char peek() const { return static_cast<unsigned char>(body_[pos_]); }
  unsigned char byte() { return static_cast<unsigned char>(body_[pos_++]); }

  // The next `bytes` bytes are there, and within the frame.
  bool need(std::uint64_t bytes) {
    if (bytes <= limit_ - pos_) return true;
    return fail(pos_, "needs " + std::to_string(bytes) + " more bytes; " +
                          std::to_string(limit_ - pos_) + " are left" +
                          (in_frame_ ? " in the frame" : ""));
  }

  std::uint64_t little_endian(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{byte()} << (8 * i);
    return value;
  }

  bool begin_frame(std::uint64_t size) {
    if (in_frame_) return fail(at_, "a frame begins inside another");
    if (!need(size)) return false;
    limit_ = pos_ + size;
    in_frame_ = true;
    return true;
  }

  Node& push(Kind kind) {
    stack_.push_back(static_cast<std::uint32_t>(nodes_.size()));
    nodes_.push_back({kind, static_cast<std::uint32_t>(at_), {0}});
    return nodes_.back();
  }
  bool push_container(Kind kind) {
    push(kind).children = {kNoLink, kNoLink, 0};
    return true;
  }
  bool push_integer(Kind kind, std::int64_t value) {
    push(kind).integer = value;
    return true;
  }
  bool push_long(unsigned char bytes) {
    if (bytes > 8) {
      return fail(at_, "an integer of " + std::to_string(bytes) + " bytes; expected at most 8");
    }
    if (!need(bytes)) return false;
    std::uint64_t value = little_endian(bytes);
    if (bytes > 0 && bytes < 8 && value >> (8 * bytes - 1) != 0) value |= ~0ull << (8 * bytes);
    return push_integer(Kind::kInt, static_cast<std::int64_t>(value));
  }
  bool push_text(std::uint64_t size) {
    if (!need(size)) return false;
    if (const auto bad = first_bad_utf8(body_.substr(pos_, size))) {
      return fail(pos_ + *bad, "a text is not UTF-8");
    }
    push(Kind::kText).text = {static_cast<std::uint32_t>(pos_), static_cast<std::uint32_t>(size)};
    pos_ += size;
    return true;
  }

  // A mark belongs to a container that is being filled, so marks nest as containers do.
  bool push_mark() {
    if (marks_.size() == kPickleDepth) {
      return fail(at_, "nested deeper than " + std::to_string(kPickleDepth) + " levels");
    }
    marks_.push_back(static_cast<std::uint32_t>(stack_.size()));
    return true;
  }
  // At least `count` values lie above the last mark: what is below it is out of reach.
  bool above_mark(std::size_t count) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor >= count) return true;
    return fail(at_, "takes " + std::to_string(count) + " values; " +
                         std::to_string(stack_.size() - floor) + " are there");
  }
  // Takes the last mark off; `below` values must lie under it and above the one before.
  bool pop_mark(std::size_t below) {
    if (marks_.empty()) return fail(at_, "there is no mark to go back to");
    floor_after_mark_ = marks_.back();
    marks_.pop_back();
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (floor_after_mark_ - floor >= below) return true;
    return fail(at_, "there is nothing under the mark to add to");
  }

  void link(Node& parent, std::uint32_t child) {
    Children& children = parent.children;
    const auto fresh = static_cast<std::uint32_t>(links_.size());
    links_.push_back({child, kNoLink});
    if (children.count == 0) {
      children.first = fresh;
    } else {
      links_[children.last].next = fresh;
    }
    children.last = fresh;
    ++children.count;
  }

  // Moves the upper `count` values into the container below them.
  bool add(Kind kind, std::size_t count) {
    const std::size_t floor = stack_.size() - count;
    Node& parent = nodes_[stack_[floor - 1]];
    if (parent.kind != kind) {
      return fail(
          at_, std::string("adds to ") + kind_name(parent.kind) + "; expected " + kind_name(kind));
    }
    if (kind == Kind::kDict && count % 2 != 0) return fail(at_, "a key has no value");
    for (std::size_t i = floor; i < stack_.size(); ++i) {
      const Node& child = nodes_[stack_[i]];
      if (kind == Kind::kDict && (i - floor) % 2 == 0 && child.kind != Kind::kText) {
        return fail(child.at,
                    std::string("a key is ") + kind_name(child.kind) + "; expected a text");
      }
      link(parent, stack_[i]);
    }
    stack_.resize(floor);
    return true;
  }

  bool make_tuple(std::size_t count) {
    if (!above_mark(count)) return false;
    const std::size_t floor = stack_.size() - count;
    Node tuple{Kind::kTuple, static_cast<std::uint32_t>(at_), {0}};
    tuple.children = {kNoLink, kNoLink, 0};
    for (std::size_t i = floor; i < stack_.size(); ++i) link(tuple, stack_[i]);
    stack_.resize(floor);
    push(Kind::kTuple).children = tuple.children;
    return true;
  }

  // Python numbers its memo densely, so an index beyond the next one is no claim worth the memory.
  bool put(std::uint64_t index) {
    if (!above_mark(1)) return false;
    if (index > memo_.size()) {
      return fail(at_, "memo index " + std::to_string(index) + "; expected at most " +
                           std::to_string(memo_.size()));
    }
    if (index == memo_.size()) {
      memo_.push_back(stack_.back());
    } else {
      memo_[index] = stack_.back();
    }
    return true;
  }
  bool get(std::uint64_t index) {
    if (index >= memo_.size()) {
      return fail(at_, "memo index " + std::to_string(index) + "; the memo has " +
                           std::to_string(memo_.size()) + " entries");
    }
    stack_.push_back(memo_[index]);
    return true;
  }

  bool check_top() {
    if (stack_.size() != 1 || !marks_.empty()) {
      return fail(at_,
                  std::to_string(stack_.size()) + " values at the end; expected one dictionary");
    }
    const Node& top = nodes_[stack_.back()];
    if (top.kind == Kind::kDict) return true;
    return fail(top.at,
                std::string("the message is ") + kind_name(top.kind) + "; expected a dictionary");
  }

  // ---- second pass

  // Before a container is made: it is not too deep, and its items still fit in. Without repeats
  // each link is made once.
  bool count_items(const Node& container, int depth) {
    if (depth > kPickleDepth) {
      return fail(container.at, "nested deeper than " + std::to_string(kPickleDepth) +
                                    " levels, or inside itself");
    }
    made_ += container.children.count;
    if (made_ <= links_.size() + kPickleRepeats) return true;
    return fail(container.at,
                "repeats add up to more than " + std::to_string(kPickleRepeats) + " values");
  }

  bool count_text(const Node& node) {
    made_text_ += node.text.size;
    if (made_text_ <= body_.size() + kPickleRepeatedText) return true;
    return fail(node.at, "repeats add up to more than " + std::to_string(kPickleRepeatedText) +
                             " bytes of text");
  }
  std::string_view text(const Node& node) const {
    return body_.substr(node.text.begin, node.text.size);
  }

  template <typename Made>
  bool make(std::uint32_t index, int depth, const Made& made);
  bool fill_list(const Node& node, int depth, Value::List* list);
  bool fill_dict(const Node& node, int depth, Value::Dict* dict);
  bool keys_differ(const Node& dict);

  const std::string_view body_;
  std::size_t pos_ = 0;
  std::size_t limit_;  // of the frame, or of the body outside of frames
  bool in_frame_ = false;
  std::size_t at_ = 0;  // the opcode that is being carried out
  std::size_t floor_after_mark_ = 0;
  std::size_t made_ = 0, made_text_ = 0;
  Status error_;
  // Enough for a usual message without going to the heap.
  std::array<std::byte, 4096> room_;
  std::pmr::monotonic_buffer_resource pool_{room_.data(), room_.size()};
  std::pmr::vector<Node> nodes_{&pool_};
  std::pmr::vector<Link> links_{&pool_};
  std::pmr::vector<std::uint32_t> stack_{&pool_}, memo_{&pool_}, marks_{&pool_};
};

// `made` takes what the value holds (nothing: none), so that it is constructed in its place.
template <typename Made>
bool Decoder::make(std::uint32_t index, int depth, const Made& made) {
  const Node& node = nodes_[index];
  switch (node.kind) {
    case Kind::kNone:
      made();
      return true;
    case Kind::kBool:
      made(node.integer != 0);
      return true;
    case Kind::kInt:
      made(node.integer);
      return true;
    case Kind::kText:
      if (!count_text(node)) return false;
      made(std::string(text(node)));
      return true;
    case Kind::kList:
    case Kind::kTuple: {
      Value::List list;
      if (!fill_list(node, depth + 1, &list)) return false;
      made(std::move(list));
      return true;
    }
    case Kind::kDict: {
      Value::Dict dict;
      if (!fill_dict(node, depth + 1, &dict)) return false;
      made(std::move(dict));
      return true;
    }
  }
  return fail(node.at, "unknown kind");
}

bool Decoder::fill_list(const Node& node, int depth, Value::List* list) {
  if (!count_items(node, depth)) return false;
  list->reserve(node.children.count);
  const auto made = [list](auto&&... held) {
    list->emplace_back(std::forward<decltype(held)>(held)...);
  };
  for (std::uint32_t l = node.children.first; l != kNoLink; l = links_[l].next) {
    if (!make(links_[l].node, depth, made)) return false;
  }
  return true;
}

bool Decoder::fill_dict(const Node& node, int depth, Value::Dict* dict) {
  if (!count_items(node, depth) || !keys_differ(node)) return false;
  dict->reserve(node.children.count / 2);
  for (std::uint32_t l = node.children.first; l != kNoLink; l = links_[l].next) {
    const Node& key = nodes_[links_[l].node];
    if (!count_text(key)) return false;
    l = links_[l].next;
    const auto made = [this, dict, &key](auto&&... held) {
      dict->emplace_back(std::piecewise_construct, std::forward_as_tuple(text(key)),
                         std::forward_as_tuple(std::forward<decltype(held)>(held)...));
    };
    if (!make(links_[l].node, depth, made)) return false;
  }
  return true;
}

// Python's own dictionaries never hold a key twice. Compared pairwise while that is cheapest.
bool Decoder::keys_differ(const Node& dict) {
  static constexpr std::uint32_t kFew = 16;
  const auto twice = [this](const Node& key) {
    return fail(key.at, "the key \"" + std::string(text(key).substr(0, 40)) +
                            "\" comes twice in its dictionary");
  };
  const auto next_key = [this](std::uint32_t l) { return links_[links_[l].next].next; };
  if (dict.children.count / 2 <= kFew) {
    for (std::uint32_t l = dict.children.first; l != kNoLink; l = next_key(l)) {
      const Node& key = nodes_[links_[l].node];
      for (std::uint32_t k = dict.children.first; k != l; k = next_key(k)) {
        if (text(nodes_[links_[k].node]) == text(key)) return twice(key);
      }
    }
    return true;
  }
  std::vector<const Node*> keys;
  keys.reserve(dict.children.count / 2);
  for (std::uint32_t l = dict.children.first; l != kNoLink; l = next_key(l)) {
    keys.push_back(&nodes_[links_[l].node]);
  }
  // Nodes lie in the order of the body, so equal keys stay in that order.
  std::sort(keys.begin(), keys.end(), [this](const Node* a, const Node* b) {
    const int order = text(*a).compare(text(*b));
    return order != 0 ? order < 0 : a < b;
  });
  const auto found =
      std::adjacent_find(keys.begin(), keys.end(),
                         [this](const Node* a, const Node* b) { return text(*a) == text(*b); });
  return found == keys.end() || twice(**(found + 1));
}

}  // namespace

Result<Message> decode_pickle(std::string_view body) {
  try {
    return Decoder(body).message();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "pickle.decode", "body", 0,
                         "of " + std::to_string(body.size()) + " bytes");
  }
}

}  // namespace kv
