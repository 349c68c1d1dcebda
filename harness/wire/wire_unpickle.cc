// Reads Python's pickle, for the few kinds that the worker protocol holds. Nodes are built first
// and values last: a pickle can refer to an object again, so a short text can stand for an endless
// value or one of astronomic size. Both are found when the values are made, by depth and by count.
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "harness/wire/wire.h"
#include "harness/wire/wire_pickle_ops.h"

namespace kv::drill {

namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kMostValues = 1'000'000;
constexpr std::size_t kMostTextBytes = std::size_t{256} << 20;  // of all values together

class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : bytes_(bytes) {}

  tl::expected<Value, std::string> run() {
    while (why_.empty() && !stopped_) {
      op_at_ = at_;
      step();
    }
    if (why_.empty() && at_ != bytes_.size()) {
      op_at_ = at_;
      refuse(std::to_string(bytes_.size() - at_) + " bytes follow the end of the pickle");
    }
    Value value;
    if (why_.empty()) build(result_, 0, &value);
    if (!why_.empty()) return tl::unexpected(why_);
    return value;
  }

 private:
  struct Node {
    Value scalar;
    enum Kind { kScalar, kList, kDict } kind = kScalar;
    std::vector<Node*> items;  // of a dictionary: key, value, key, value
    bool being_built = false;
  };

  void refuse(const std::string& what) {
    if (why_.empty()) why_ = "byte " + std::to_string(op_at_) + ": " + what;
  }

  // ---- operands. On a short rest the pickle is refused and 0 or "" returned.
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) {
      refuse("needs " + std::to_string(size) + " more bytes, has " +
             std::to_string(bytes_.size() - at_));
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }
  std::uint64_t number(int size) {
    const std::string_view bytes = take(static_cast<std::uint64_t>(size));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return value;
  }

  // ---- the stack; a null node is a mark
  void push(Value value) {
    nodes_.push_back({std::move(value), Node::kScalar, {}, false});
    stack_.push_back(&nodes_.back());
  }
  void push(Node::Kind kind) {
    nodes_.push_back({Value(), kind, {}, false});
    stack_.push_back(&nodes_.back());
  }
  // Takes `count` objects off the stack, or those down to the mark and the mark.
  std::vector<Node*> pop(std::size_t count) {
    std::size_t from = stack_.size();
    while (from > 0 && stack_[from - 1] != nullptr && stack_.size() - from < count) --from;
    if (stack_.size() - from < count) {
      refuse("takes more objects than are there");
      return {};
    }
    std::vector<Node*> taken(stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    stack_.resize(from);
    return taken;
  }
  std::vector<Node*> pop_to_mark() {
    std::size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1] != nullptr) --mark;
    if (mark == 0) {
      refuse("there is no mark on the stack");
      return {};
    }
    std::vector<Node*> taken(stack_.begin() + static_cast<std::ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return taken;
  }
  Node* top(const char* what, Node::Kind kind) {
    if (!why_.empty()) return nullptr;
    if (stack_.empty() || stack_.back() == nullptr || stack_.back()->kind != kind) {
      refuse(std::string("there is no ") + what + " to add to");
      return nullptr;
    }
    return stack_.back();
  }

  void append(const std::vector<Node*>& items) {
    Node* list = top("list", Node::kList);
    if (list != nullptr) list->items.insert(list->items.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<Node*>& items) {
    Node* dict = top("dictionary", Node::kDict);
    if (dict == nullptr) return;
    if (items.size() % 2 != 0) return refuse("a key has no value");
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (!std::holds_alternative<std::string>(items[i]->scalar.data)) {
        return refuse("a dictionary's key is not a text");
      }
    }
    dict->items.insert(dict->items.end(), items.begin(), items.end());
  }

  void remember(std::uint64_t index) {
    if (!why_.empty()) return;
    if (stack_.empty() || stack_.back() == nullptr) return refuse("there is nothing to remember");
    memo_[index] = stack_.back();
  }
  void recall(std::uint64_t index) {
    if (!why_.empty()) return;
    const auto found = memo_.find(index);
    if (found == memo_.end()) return refuse("nothing is remembered under " + std::to_string(index));
    stack_.push_back(found->second);
  }
  void push_text(std::uint64_t size) {
    const std::string_view text = take(size);
    if (why_.empty()) push(Value(std::string(text)));
  }
  void push_long(std::uint64_t size) {
    const std::string_view bytes = take(size);
    if (!why_.empty()) return;
    if (size > 8) return refuse("an integer of more than 64 bits");
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    const bool negative = size > 0 && (static_cast<unsigned char>(bytes[size - 1]) & 0x80) != 0;
    if (negative && size < 8) value |= ~std::uint64_t{0} << (8 * size);
    push(Value(static_cast<std::int64_t>(value)));
  }
  void start() {
    const std::uint64_t protocol = number(1);
    if (!why_.empty()) return;
    if (op_at_ != 0) return refuse("a second protocol mark");
    if (protocol < 2 || protocol > 5) {
      return refuse("protocol " + std::to_string(protocol) + ", expected 2 to 5");
    }
  }
  void stop() {
    if (stack_.size() != 1 || stack_.back() == nullptr) {
      return refuse("ends with " + std::to_string(stack_.size()) + " objects, expected 1");
    }
    result_ = stack_.back();
    stopped_ = true;
  }

  void step() {
    if (at_ == bytes_.size()) return refuse("the pickle ends without its stop mark");
    const auto op = static_cast<unsigned char>(bytes_[at_++]);
    if (op_at_ == 0 && op != kProto) return refuse("does not begin with a protocol mark");
    switch (op) {
      case kProto:
        return start();
      case kFrame:
        return check_frame(number(8));
      case kStop:
        return stop();
      case kMark:
        return stack_.push_back(nullptr);
      case kNone:
        return push(Value());
      case kNewTrue:
        return push(Value(true));
      case kNewFalse:
        return push(Value(false));
      case kBinFloat:
        return push(Value(std::bit_cast<double>(__builtin_bswap64(number(8)))));
      case kBinInt:
        return push(Value(std::int64_t{static_cast<std::int32_t>(number(4))}));
      case kBinInt1:
        return push(Value(static_cast<std::int64_t>(number(1))));
      case kBinInt2:
        return push(Value(static_cast<std::int64_t>(number(2))));
      case kLong1:
        return push_long(number(1));
      case kShortBinUnicode:
        return push_text(number(1));
      case kBinUnicode:
        return push_text(number(4));
      case kBinUnicode8:
        return push_text(number(8));
      case kEmptyList:
        return push(Node::kList);
      case kEmptyDict:
        return push(Node::kDict);
      case kAppend:
        return append(pop(1));
      case kAppends:
        return append(pop_to_mark());
      case kSetItem:
        return set_items(pop(2));
      case kSetItems:
        return set_items(pop_to_mark());
      case kMemoize:
        return remember(memo_.size());
      case kBinPut:
        return remember(number(1));
      case kLongBinPut:
        return remember(number(4));
      case kBinGet:
        return recall(number(1));
      case kLongBinGet:
        return recall(number(4));
      default:
        break;
    }
    refuse("opcode " + std::to_string(op) + " stands for nothing that a message can hold");
  }
  void check_frame(std::uint64_t size) {
    if (why_.empty() && size > bytes_.size() - at_) {
      refuse("a frame of " + std::to_string(size) + " bytes, but " +
             std::to_string(bytes_.size() - at_) + " are left");
    }
  }

  void build(Node* node, int depth, Value* value) {
    op_at_ = at_;
    if (node->being_built) return refuse("a value that contains itself");
    if (depth > kDeepest) {
      return refuse("nested deeper than " + std::to_string(kDeepest) + " levels");
    }
    if (++built_ > kMostValues) {
      return refuse("more than " + std::to_string(kMostValues) + " values");
    }
    node->being_built = true;
    if (node->kind == Node::kScalar) {
      if (const auto* text = std::get_if<std::string>(&node->scalar.data)) count_text(text->size());
      if (!why_.empty()) return;
      *value = node->scalar;
    } else if (node->kind == Node::kList) {
      Value::List list;
      for (Node* item : node->items) {
        build(item, depth + 1, &list.emplace_back());
        if (!why_.empty()) return;
      }
      *value = std::move(list);
    } else {
      build_dict(node, depth, value);
    }
    node->being_built = false;
  }
  void count_text(std::size_t size) {
    built_text_ += size;
    if (built_text_ > kMostTextBytes) {
      refuse("texts of more than " + std::to_string(kMostTextBytes) + " bytes");
    }
  }
  // A key that comes again keeps its place and takes the later value, as in Python.
  void build_dict(Node* node, int depth, Value* value) {
    Value::Dict dict;
    std::map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < node->items.size(); i += 2) {
      const auto& key = std::get<std::string>(node->items[i]->scalar.data);
      count_text(key.size());
      const auto [place, is_new] = places.emplace(key, dict.size());
      if (is_new) dict.emplace_back(key, Value());
      build(node->items[i + 1], depth + 1, &dict[place->second].second);
      if (!why_.empty()) return;
    }
    *value = std::move(dict);
  }

  const std::string_view bytes_;
  std::size_t at_ = 0, op_at_ = 0;
  std::string why_;
  bool stopped_ = false;
  std::deque<Node> nodes_;  // a deque: their addresses stay
  std::vector<Node*> stack_;
  std::map<std::uint64_t, Node*> memo_;
  Node* result_ = nullptr;
  std::size_t built_ = 0, built_text_ = 0;
};

}  // namespace

tl::expected<Value, std::string> unpickle(std::string_view bytes) {
  return Unpickler(bytes).run();
}

}  // namespace kv::drill
