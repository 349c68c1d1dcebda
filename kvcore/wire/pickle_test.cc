#include "kvcore/wire/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace kv {
namespace {

using namespace std::string_literals;  // NOLINT: texts with zero bytes in them
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Value to_value(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_string()) return Value(json.get<std::string>());
  if (json.is_array()) {
    Value::List list;
    for (const Json& item : json) list.push_back(to_value(item));
    return Value(std::move(list));
  }
  if (json.is_object()) {
    Value::Dict dict;
    for (const auto& [key, item] : json.items()) dict.emplace_back(key, to_value(item));
    return Value(std::move(dict));
  }
  return Value(json.get<std::int64_t>());
}

std::vector<Json> lines(const std::string& name) {
  std::ifstream file(std::string(KVDRILL_SOURCE_DIR) + "/kvcore/testdata/" + name);
  std::vector<Json> all;
  for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
  return all;
}

struct Vector {
  std::string name;
  int protocol;
  Message value;
  std::string bytes;
};
const std::vector<Vector>& vectors() {
  static const std::vector<Vector> all = [] {
    std::vector<Vector> read;
    for (const Json& line : lines("pickle-vectors.jsonl")) {
      const Value value = to_value(line.at("value"));
      read.push_back({line.at("name"), line.at("protocol"), *value.as_dict(),
                      from_hex(line.at("pickle_hex"))});
    }
    return read;
  }();
  return all;
}

// A body made of opcodes, for what no vector has.
std::string body(const std::string& opcodes) {
  return "\x80\x04" + opcodes;
}
// A dictionary {"k": <value>}.
std::string holding(const std::string& value) {
  return body("}\x8c\x01k" + value + "s.");
}
std::string number(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

void expect_refused(const std::string& bytes, const std::string& at, const std::string& why) {
  const auto result = decode_pickle(bytes);
  ASSERT_FALSE(result.ok()) << why;
  EXPECT_EQ(result.error().code(), Code::kProtocol);
  EXPECT_EQ(result.error().operation(), "pickle.decode");
  EXPECT_EQ(result.error().object(), at) << result.error().to_string();
  EXPECT_THAT(std::string(result.error().text()), HasSubstr(why));
}

TEST(PickleVectors, AreAllThere) {
  std::set<std::string> names;
  for (const Vector& vector : vectors()) names.insert(vector.name);
  EXPECT_EQ(names.size(), 22u);
  EXPECT_EQ(vectors().size(), 88u);
}

TEST(PickleVectors, DecodeFromProtocols2To5) {
  for (const Vector& vector : vectors()) {
    SCOPED_TRACE(vector.name + " protocol " + std::to_string(vector.protocol));
    const auto message = decode_pickle(vector.bytes);
    ASSERT_TRUE(message.ok()) << message.error().to_string();
    EXPECT_EQ(*message, vector.value);
  }
}

TEST(PickleVectors, EncodeByteForByte) {
  int compared = 0;
  for (const Vector& vector : vectors()) {
    if (vector.protocol != 4) continue;
    ++compared;
    const auto bytes = encode_pickle(vector.value);
    ASSERT_TRUE(bytes.ok()) << bytes.error().to_string();
    EXPECT_EQ(*bytes, vector.bytes) << vector.name;
  }
  EXPECT_EQ(compared, 22);
}

TEST(PickleVectors, EveryProperPrefixIsRefused) {
  for (const Vector& vector : vectors()) {
    for (std::size_t size = 0; size < vector.bytes.size(); ++size) {
      // The long one is the same everywhere in its middle.
      if (size > 300 && size + 300 < vector.bytes.size() && size % 97 != 0) continue;
      // A copy of its own, so that a sanitizer sees a read beyond it.
      const std::vector<char> prefix(vector.bytes.begin(), vector.bytes.begin() + size);
      const auto message = decode_pickle({prefix.data(), prefix.size()});
      ASSERT_FALSE(message.ok()) << vector.name << " cut after " << size;
      ASSERT_EQ(message.error().code(), Code::kProtocol);
    }
  }
}

TEST(PickleVectors, EverySingleByteMutationDecodesOrIsRefused) {
  int decoded = 0, refused = 0;
  for (const Vector& vector : vectors()) {
    if (vector.name != "prepare_unmap_commit" && vector.name != "negative_and_none") continue;
    for (std::size_t i = 0; i < vector.bytes.size(); ++i) {
      for (int byte = 0; byte < 256; ++byte) {
        std::vector<char> mutant(vector.bytes.begin(), vector.bytes.end());
        mutant[i] = static_cast<char>(byte);
        const auto message = decode_pickle({mutant.data(), mutant.size()});
        if (message.ok()) {
          ++decoded;
          EXPECT_TRUE(encode_pickle(*message).ok());
        } else {
          ++refused;
          EXPECT_EQ(message.error().code(), Code::kProtocol);
        }
      }
    }
  }
  EXPECT_GT(decoded, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(PickleHostile, IsRefused) {
  int refused = 0;
  for (const Json& line : lines("pickle-hostile.jsonl")) {
    std::string bytes;
    if (line.at("bytes_hex").is_string()) {
      bytes = from_hex(line.at("bytes_hex"));
    } else {
      ASSERT_EQ(line.at("name"), "deep_nesting");
      bytes = body(std::string(100000, ']') + std::string(99999, 'a') + ".");
    }
    ASSERT_EQ(bytes.size(), line.at("length").get<std::size_t>());
    const auto message = decode_pickle(bytes);
    ASSERT_FALSE(message.ok()) << line.at("name");
    EXPECT_EQ(message.error().code(), Code::kProtocol) << message.error().to_string();
    ++refused;
  }
  EXPECT_EQ(refused, 15);
}

TEST(PickleDecode, SaysAtWhichByteAndWhat) {
  expect_refused("", "byte 0", "needs 2 more bytes; 0 are left");
  expect_refused("{}", "byte 0", "expected a protocol opcode");
  expect_refused("\x80\x06}.", "byte 1", "protocol 6; expected 2 to 5");
  expect_refused(body("cos\nsystem\n."), "byte 2", "opcode 0x63");
  expect_refused(body("G????????."), "byte 2", "a number with a point; expected an integer");
  expect_refused(body("}.junk"), "byte 4", "4 bytes follow");
  expect_refused(body("."), "byte 2", "0 values at the end");
  expect_refused(body("}}."), "byte 4", "2 values at the end");
  expect_refused(body("]."), "byte 2", "a list; expected a dictionary");
  expect_refused(body("}(."), "byte 4", "at the end");
  expect_refused(body("}K\x01K\x02s."), "byte 3", "a key is an integer; expected a text");
  expect_refused(body("}(\x8c\x01ku."), "byte 7", "a key has no value");
  expect_refused(body("}Na."), "byte 4", "adds to a dictionary; expected a list");
  expect_refused(body("a."), "byte 2", "takes 2 values; 0 are there");
  expect_refused(body("e."), "byte 2", "no mark");
  expect_refused(body("(e."), "byte 3", "nothing under the mark");
  expect_refused(body("](Na."), "byte 5", "takes 2 values; 1 are there");
  expect_refused(body("}\x8c\x05k"), "byte 5", "needs 5 more bytes; 1 are left");
  expect_refused(holding("\x8c\x01\xff"), "byte 8", "not UTF-8");
  expect_refused(holding("h\x07"), "byte 6", "memo index 7; the memo has 0 entries");
  expect_refused(body("}\x8c\x01kNs\x8c\x01kNs."), "byte 8", "\"k\" comes twice");
}

TEST(PickleDecode, KeepsToTheFrame) {
  const std::string seven = std::string(7, '\0');
  EXPECT_TRUE(decode_pickle(body("\x95\x02" + seven + "}.")).ok());
  // An opcode may not reach over its frame's end, nor a frame begin in another.
  expect_refused(body("\x95\x02" + seven + "}\x8c\x01kNs."), "byte 13", "left in the frame");
  expect_refused(body("\x95\x0b" + seven + "\x95\x01" + seven + "}."), "byte 11", "inside another");
  expect_refused(body("\x95\x03" + seven + "}."), "byte 11", "needs 3 more bytes; 2 are left");
}

TEST(PickleDecode, ReadsTheLargestAndSmallestIntegers) {
  const auto bytes_of = [](std::int64_t value, std::size_t size) {
    std::string bytes;
    for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
    return bytes;
  };
  for (const std::int64_t value : {std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}}) {
    const auto message = decode_pickle(holding("\x8a\x08" + bytes_of(value, 8)));
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(*find(*message, "k")->as_int(), value);
  }
  const auto zero = decode_pickle(holding("\x8a\0"s));
  ASSERT_TRUE(zero.ok());
  EXPECT_EQ(*find(*zero, "k")->as_int(), 0);
  // 2^63 needs nine bytes.
  expect_refused(holding("\x8a\x09" + bytes_of(std::numeric_limits<std::int64_t>::min(), 8) +
                         std::string(1, '\0')),
                 "byte 6", "an integer of 9 bytes; expected at most 8");
}

TEST(PickleDecode, ReadsTuplesAsLists) {
  const auto message = decode_pickle(holding("(K\x01K\x02K\x03K\x04tN\x86\x85)\x86"));
  ASSERT_TRUE(message.ok()) << message.error().to_string();
  const Value four(Value::List{1, 2, 3, 4});
  const Value pair(Value::List{four, Value()});
  EXPECT_EQ(*find(*message, "k"),
            Value(Value::List{Value(Value::List{pair}), Value(Value::List{})}));
}

TEST(PickleDecode, ReadsAnObjectThatIsMetTwice) {
  // {"k": [L, L]} with L filled after it was put into the memo, as Python does.
  const auto message = decode_pickle(holding("](]\x94(K\x05K\x06\x65h\0e"s));
  ASSERT_TRUE(message.ok()) << message.error().to_string();
  const Value inner(Value::List{5, 6});
  EXPECT_EQ(*find(*message, "k"), Value(Value::List{inner, inner}));
}

TEST(PickleDecode, RefusesAValueInsideItself) {
  expect_refused(holding("]\x94h\0a"s), "byte 6", "inside itself");
}

TEST(PickleDecode, BoundsDepthAtItsLimit) {
  const auto nested = [](int lists) {
    return holding(std::string(lists, ']') + std::string(lists - 1, 'a'));
  };
  EXPECT_TRUE(decode_pickle(nested(kPickleDepth - 1)).ok());
  EXPECT_FALSE(decode_pickle(nested(kPickleDepth)).ok());
  expect_refused(body("}" + std::string(kPickleDepth + 1, '(')), "byte 35", "nested deeper");
}

TEST(PickleDecode, BoundsWhatRepeatsAddUpTo) {
  // A list of 1,000 nones, then so often again.
  const auto repeated = [](int times) {
    std::string list = "](](" + std::string(1000, 'N') + "e\x94";
    for (int i = 0; i < times; ++i) list += "h\0"s;
    return holding(list + "e");
  };
  EXPECT_TRUE(decode_pickle(repeated(65)).ok());
  EXPECT_FALSE(decode_pickle(repeated(66)).ok());

  std::string texts = "](X" + number(1 << 20) + std::string(1 << 20, 'x') + "\x94";
  for (int i = 0; i < 16; ++i) texts += "h\0"s;
  EXPECT_TRUE(decode_pickle(holding(texts + "e")).ok());
  EXPECT_FALSE(decode_pickle(holding(texts + "h\0"s + "e")).ok());
}

TEST(PickleDecode, RefusesClaimsThatTheBodyDoesNotHold) {
  expect_refused(holding("X" + number(0xffffffff)), "byte 11", "needs 4294967295 more bytes");
  expect_refused(holding("\x8d" + std::string(8, '\xff')), "byte 15", "more bytes");
  expect_refused(holding("Nr" + number(0x7fffffff)), "byte 7",
                 "memo index 2147483647; expected at most 0");
}

TEST(PickleDecode, FindsARepeatedKeyAmongMany) {
  std::string items = "}(";
  for (int i = 0; i < 5000; ++i) items += "X" + number(4) + std::to_string(1000 + i) + "N";
  EXPECT_TRUE(decode_pickle(body(items + "u.")).ok());
  const auto twice = decode_pickle(body(items + "X" + number(4) + "3210Nu."));
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().to_string(), HasSubstr("\"3210\" comes twice"));
}

TEST(PickleDecode, TakesOnlyShortestUtf8WithoutSurrogates) {
  for (const std::string text :
       {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80", "\xe2\x82", "abcdefgh\xe2\x28\xa1"}) {
    const auto message =
        decode_pickle(holding("\x8c" + std::string(1, static_cast<char>(text.size())) + text));
    EXPECT_FALSE(message.ok());
    EXPECT_FALSE(encode_pickle({{"k", Value(text)}}).ok());
  }
  for (const std::string text :
       {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "plain ascii of more than eight"}) {
    const auto message =
        decode_pickle(holding("\x8c" + std::string(1, static_cast<char>(text.size())) + text));
    EXPECT_TRUE(message.ok());
    EXPECT_TRUE(encode_pickle({{"k", Value(text)}}).ok());
  }
}

// What no short vector reaches: batches of 1,000 items, frames of 64 KiB, texts outside of frames.
// The lengths and hashes are of CPython 3.11's pickle.dumps(value, protocol=4).
std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Message large_message(const std::string& name) {
  Value::List list;
  Value::Dict dict;
  if (name == "items_1000" || name == "items_1001") {
    for (int i = 0; i < (name == "items_1000" ? 1000 : 1001); ++i) list.emplace_back(i);
  } else if (name == "keys_2500") {
    for (int i = 0; i < 2500; ++i) dict.emplace_back("key" + std::to_string(i), i);
  } else if (name == "frames") {
    for (int i = 0; i < 30000; ++i) list.emplace_back(std::int64_t{i} * 2097152);
  } else {
    const std::size_t size = std::stoul(name.substr(5));
    list = {1, std::string(size, 'x'), 2, std::string(size, 'y')};
  }
  if (!dict.empty()) return {{"dict", Value(dict)}};
  return {{"list", Value(list)}, {"end", true}};
}

TEST(PickleLarge, EncodesAsPythonAndDecodesAgain) {
  int compared = 0;
  for (const Json& line : lines("pickle-large.jsonl")) {
    const std::string name = line.at("name");
    const Message message = large_message(name);
    const auto bytes = encode_pickle(message);
    ASSERT_TRUE(bytes.ok()) << name;
    EXPECT_EQ(bytes->size(), line.at("length").get<std::size_t>()) << name;
    EXPECT_EQ(fnv1a(*bytes), std::stoull(line.at("fnv1a64").get<std::string>(), nullptr, 16))
        << name;
    const auto again = decode_pickle(*bytes);
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(*again, message) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 10);
}

TEST(PickleEncode, RefusesWhatCannotBeSaidAndLeavesTheOutput) {
  Value deep(1);
  for (int i = 0; i < kPickleDepth; ++i) deep = Value(Value::List{std::move(deep)});
  std::string out = "kept";
  const Status too_deep = append_pickle({{"k", deep}}, out);
  EXPECT_EQ(too_deep.code(), Code::kInvalidArgument);
  EXPECT_THAT(too_deep.to_string(), HasSubstr("nested deeper than 32 levels"));
  const Status not_text = append_pickle({{"k", Value("ab\xff")}}, out);
  EXPECT_THAT(not_text.to_string(), HasSubstr("not UTF-8 at its byte 2"));
  EXPECT_EQ(out, "kept");
  EXPECT_TRUE(append_pickle({{"k", deep.as_list()->front()}}, out).ok());
  EXPECT_EQ(out.substr(0, 4), "kept");
}

TEST(PickleEncode, SurvivesItsOwnReading) {
  // Every kind, nested to the limit on both sides.
  Value deep(Value::Dict{{"", Value()}});
  for (int i = 0; i < kPickleDepth - 2; ++i) deep = Value(Value::List{true, std::move(deep), -1});
  const Message message = {{"deep", deep}, {"empty", Value::List{}}, {"none", Value()}};
  const auto bytes = encode_pickle(message);
  ASSERT_TRUE(bytes.ok());
  const auto again = decode_pickle(*bytes);
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_EQ(*again, message);
}

TEST(Encodable, WritesOutOnlyTheBytesThatAreNotUtf8) {
  EXPECT_EQ(encodable(""), "");
  EXPECT_EQ(encodable("plain \xc3\xa9"), "plain \xc3\xa9");
  EXPECT_EQ(encodable("\xff"
                      "a\xc3"),
            "\\xffa\\xc3");
  EXPECT_TRUE(encode_pickle({{"m", encodable("\xed\xa0\x80 half \xe2\x82")}}).ok());
}

}  // namespace
}  // namespace kv
