#include "harness/wire/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

// The lines of a file of vectors, each a JSON object.
std::vector<Value> vectors(const std::string& name) {
  std::ifstream file(std::string(KVDRILL_SOURCE_DIR) + "/kvcore/testdata/" + name);
  std::vector<Value> lines;
  for (std::string line; std::getline(file, line);) {
    auto value = from_json(line);
    EXPECT_TRUE(value.has_value()) << name << ": " << line << ": " << value.error();
    if (value) lines.push_back(std::move(*value));
  }
  EXPECT_FALSE(lines.empty()) << name << " is missing or empty";
  return lines;
}

std::string text_of(const Value& line, const char* field) {
  const Value* value = line.find(field);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  return text == nullptr ? "" : *text;
}

std::string why_refused(const std::string& bytes) {
  const auto value = unpickle(bytes);
  return value ? "(taken) " + to_json(*value) : value.error();
}

TEST(Pickle, EqualsCPythonsBytesAtProtocol4) {
  int compared = 0;
  for (const Value& line : vectors("pickle-vectors.jsonl")) {
    if (*line.find("protocol") != Value(4)) continue;
    EXPECT_EQ(to_hex(pickle(*line.find("value"))), text_of(line, "pickle_hex"))
        << text_of(line, "name");
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

TEST(Pickle, DecodesCPythonsProtocols2To5) {
  for (const Value& line : vectors("pickle-vectors.jsonl")) {
    const auto value = unpickle(from_hex(text_of(line, "pickle_hex")));
    ASSERT_TRUE(value.has_value()) << text_of(line, "name") << ": " << value.error();
    EXPECT_EQ(*value, *line.find("value")) << text_of(line, "name");
  }
}

TEST(Pickle, RefusesHostileBodies) {
  for (const Value& line : vectors("pickle-hostile.jsonl")) {
    const std::string name = text_of(line, "name");
    std::string bytes = from_hex(text_of(line, "bytes_hex"));
    if (name == "deep_nesting") {
      bytes = "\x80\x04" + std::string(100'000, ']') + std::string(99'999, 'a') + ".";
    }
    if (name == "not_a_dict") continue;  // a value like any other here; matches() judges it
    EXPECT_FALSE(unpickle(bytes).has_value()) << name << ": " << why_refused(bytes);
  }
}

// The sizes at which CPython changes its coding: batches of 1,000 items, frames of 64 KiB, texts
// that are large enough to stand outside of frames. The expected lengths are CPython's.
TEST(Pickle, CutsBatchesAndFramesAsCPythonDoes) {
  const auto numbers = [](int count) { return Value(Value::List(count, Value(1))); };
  EXPECT_EQ(pickle(numbers(1000)).size(), 2016u);
  EXPECT_EQ(pickle(numbers(1001)).size(), 2020u);
  Value::Dict fields;
  for (int i = 0; i < 1000; ++i) fields.emplace_back("key" + std::to_string(i), Value());
  EXPECT_THAT(pickle(Value(fields)), ::testing::EndsWith("N"
                                                         "u(u."));
  EXPECT_EQ(pickle(numbers(40'000)).size(), 80'103u);
  const Value large(Value::List{Value(std::string(65'536, 'x')), Value(7)});
  const std::string bytes = pickle(large);
  EXPECT_EQ(bytes.size(), 65'560u);
  EXPECT_EQ(*unpickle(bytes), large);
}

TEST(Pickle, TakesIntegersOfEverySize) {
  std::vector<std::int64_t> numbers = {0, std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max()};
  for (int shift = 0; shift < 63; ++shift) {
    const std::int64_t power = std::int64_t{1} << shift;
    for (const std::int64_t near : {power - 1, power, power + 1}) {
      numbers.push_back(near);
      numbers.push_back(-near);
    }
  }
  for (const std::int64_t number : numbers) {
    const auto back = unpickle(pickle(Value(number)));
    ASSERT_TRUE(back.has_value()) << number << ": " << back.error();
    EXPECT_EQ(*back, Value(number));
  }
  EXPECT_EQ(to_hex(pickle(Value(std::int64_t{-128}))), "80049506000000000000004a80ffffff2e");
  EXPECT_EQ(to_hex(pickle(Value(std::int64_t{1} << 31))), "80049508000000000000008a0500000080002e");
}

TEST(Pickle, TakesNumbersWithAPointAsCPythonDoes) {
  const std::string bytes(
      "\x80\x04\x95\x11\0\0\0\0\0\0\0}\x94\x8c\x01"
      "a\x94G?\xf8\0\0\0\0\0\0s.",
      28);
  const Value value(Value::Dict{{"a", Value(1.5)}});
  EXPECT_EQ(pickle(value), bytes);
  for (const double real : {0.0, -0.1, 1e300, 5e-324}) {
    EXPECT_EQ(unpickle(pickle(Value(real))).value(), Value(real));
    EXPECT_EQ(from_json(to_json(Value(real))).value(), Value(real)) << to_json(Value(real));
  }
  EXPECT_EQ(to_json(Value(2.0)), "2.0") << "it stays what it is";
}
TEST(Pickle, SharesKeysAndSingleCharactersAsCPythonDoes) {
  // pickle.dumps(json.loads('[{"ab": "xy"}, {"ab": "xy"}, "", ""]'), protocol=4)
  const Value value = *from_json(R"([{"ab": "xy"}, {"ab": "xy"}, "", ""])");
  EXPECT_EQ(
      to_hex(pickle(value)),
      "80049521000000000000005d94287d948c026162948c02787994737d9468028c02787994738c00946806652e");
  EXPECT_EQ(*unpickle(pickle(value)), value);
}

TEST(Pickle, NamesTheByteAndTheFault) {
  EXPECT_EQ(why_refused(""), "byte 0: the pickle ends without its stop mark");
  EXPECT_EQ(why_refused("N."), "byte 0: does not begin with a protocol mark");
  EXPECT_EQ(why_refused("\x80\x01N."), "byte 0: protocol 1, expected 2 to 5");
  EXPECT_EQ(why_refused("\x80\x06N."), "byte 0: protocol 6, expected 2 to 5");
  EXPECT_EQ(why_refused("\x80\x04\x80\x04N."), "byte 2: a second protocol mark");
  EXPECT_EQ(why_refused("\x80\x04."), "byte 2: ends with 0 objects, expected 1");
  EXPECT_EQ(why_refused("\x80\x04N"), "byte 3: the pickle ends without its stop mark");
  EXPECT_EQ(why_refused("\x80\x04N.N"), "byte 4: 1 bytes follow the end of the pickle");
  EXPECT_EQ(why_refused("\x80\x04X\xff\xff\xff\xffhi"),
            "byte 2: needs 4294967295 more bytes, has 2");
  EXPECT_EQ(why_refused("\x80\x04\x8a\x09"
                        "123456789."),
            "byte 2: an integer of more than 64 bits");
  EXPECT_EQ(why_refused("\x80\x04h\x07."), "byte 2: nothing is remembered under 7");
  EXPECT_EQ(why_refused("\x80\x04\x94."), "byte 2: there is nothing to remember");
  EXPECT_EQ(why_refused("\x80\x04]e."), "byte 3: there is no mark on the stack");
  EXPECT_EQ(why_refused("\x80\x04Na."), "byte 3: there is no list to add to");
  EXPECT_EQ(why_refused("\x80\x04(a."), "byte 3: takes more objects than are there");
  EXPECT_EQ(why_refused("\x80\x04}(Nu."), "byte 5: a key has no value");
  EXPECT_EQ(why_refused("\x80\x04}NNs."), "byte 5: a dictionary's key is not a text");
  EXPECT_THAT(why_refused("\x80\x04"
                          "cos\nsystem\n."),
              StartsWith("byte 2: opcode 99 "));
  EXPECT_THAT(why_refused(std::string("\x80\x04\x95\xff\0\0\0\0\0\0\0N.", 13)),
              StartsWith("byte 2: a frame of 255 bytes"));
}

TEST(Pickle, FindsEndlessAndEnormousValues) {
  EXPECT_THAT(why_refused("\x80\x04]\x94h" + std::string("\0a.", 3)),
              HasSubstr("a value that contains itself"));
  // Forty lists, each twice in the next: 2^40 values from 300 bytes.
  std::string bomb = "\x80\x04";
  for (int level = 0; level < 40; ++level) bomb += "]\x94(";
  bomb += "]\x94";
  for (char level = 40; level > 0; --level) bomb += std::string("h") + level + "e";
  EXPECT_THAT(why_refused(bomb + "."), HasSubstr("more than 1000000 values"));
}

TEST(Json, WritesOneReadableLine) {
  const Value value(Value::Dict{{"status", "success"},
                                {"created", true},
                                {"note", Value()},
                                {"offsets", Value::List{0, -1, std::int64_t{1} << 40}},
                                {"empty", Value::Dict()}});
  EXPECT_EQ(to_json(value), R"({"status": "success", "created": true, "note": null, )"
                            R"("offsets": [0, -1, 1099511627776], "empty": {}})");
  EXPECT_EQ(*from_json(to_json(value)), value);
}

TEST(Json, EscapesWhatCannotStandInAText) {
  EXPECT_EQ(to_json(Value("a\"b\\c\nd\te\x01\x7f")), R"("a\"b\\c\nd\te\u0001\u007f")");
  EXPECT_EQ(to_json(Value("na\xc3\xafve \xe9\xa1\xb5 \xf0\x9f\x94\xa5")),
            "\"na\xc3\xafve \xe9\xa1\xb5 \xf0\x9f\x94\xa5\"");
  // A lone continuation, an overlong slash, a surrogate, a cut sequence.
  EXPECT_EQ(to_json(Value("\x80|\xc0\xaf|\xed\xa0\x80|\xe9\xa1")),
            R"("\ufffd|\ufffd\ufffd|\ufffd\ufffd\ufffd|\ufffd\ufffd")");
}

TEST(Json, RefusesWhatAValueCannotHold) {
  const auto why = [](std::string_view text) {
    const auto value = from_json(text);
    return value ? "(taken) " + to_json(*value) : value.error();
  };
  EXPECT_EQ(why("123456789012345678901"), "123456789012345678901 is not an integer of 64 bits");
  EXPECT_EQ(why("9223372036854775808"),
            "9223372036854775808 does not fit into 64 bits with a sign");
  EXPECT_EQ(why("-9223372036854775808"), "(taken) -9223372036854775808");
  EXPECT_EQ(why(R"({"a": 1, "a": 2})"), "the key 'a' is doubled");
  EXPECT_EQ(why(std::string(65, '[') + std::string(65, ']')), "nested deeper than 64 levels");
  EXPECT_THAT(why("{\"a\": }"), StartsWith("byte 7: "));
  EXPECT_THAT(why(""), StartsWith("byte 1: "));
  EXPECT_THAT(why("1 2"), HasSubstr("expected end of input"));
}

TEST(Frame, PutsTheLengthInFrontBigEndian) {
  EXPECT_EQ(to_hex(frame("")), "00000000");
  EXPECT_EQ(to_hex(frame("ab")), "000000026162");
  EXPECT_EQ(to_hex(frame(std::string(0x10203, 'x'))).substr(0, 8), "00010203");
}

TEST(Matches, AsksOnlyForTheFieldsWanted) {
  const Value got =
      *from_json(R"({"status": "error", "at": {"page": 7, "rank": 0}, "list": [1, 2]})");
  std::string why;
  EXPECT_TRUE(matches(*from_json("{}"), got, &why));
  EXPECT_TRUE(matches(*from_json(R"({"list": [1, 2], "at": {"page": 7}})"), got, &why));
  EXPECT_TRUE(why.empty());
  EXPECT_TRUE(matches(got, got, nullptr));

  EXPECT_FALSE(matches(*from_json(R"({"status": "success"})"), got, &why));
  EXPECT_EQ(why, R"(status: expected "success", got "error")");
  EXPECT_FALSE(matches(*from_json(R"({"at": {"page": 8}})"), got, &why));
  EXPECT_EQ(why, "at.page: expected 8, got 7");
  EXPECT_FALSE(matches(*from_json(R"({"created": true})"), got, &why));
  EXPECT_THAT(why, StartsWith("created: expected true, got no such field in {"));
  EXPECT_FALSE(matches(*from_json(R"({"list": [1]})"), got, &why));
  EXPECT_EQ(why, "list: expected [1], got [1, 2]");
  EXPECT_FALSE(matches(*from_json("{}"), Value(Value::List()), &why));
  EXPECT_EQ(why, "expected {}, got []");
  EXPECT_FALSE(matches(Value(1), Value(true), nullptr)) << "an integer is not a truth value";
}

}  // namespace
}  // namespace kv::drill
