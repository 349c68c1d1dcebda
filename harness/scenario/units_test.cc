#include "harness/scenario/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(UnitsTest, DurationsAreWholeNumbersWithAUnit) {
  EXPECT_EQ(parse_duration("7ns"), 7);
  EXPECT_EQ(parse_duration("10us"), 10'000);
  EXPECT_EQ(parse_duration("250ms"), 250'000'000);
  EXPECT_EQ(parse_duration("5s"), 5'000'000'000);
  EXPECT_EQ(parse_duration("5 s"), 5'000'000'000);
  EXPECT_EQ(parse_duration("2min"), 120'000'000'000);
  EXPECT_EQ(parse_duration("1h"), 3'600'000'000'000);
  EXPECT_EQ(parse_duration("0s"), 0);
  for (const char* wrong :
       {"", "5", "s", "5 sec", "-5s", "1.5s", "5s ", " 5s", "5  s", "5S", "5m"}) {
    const auto parsed = parse_duration(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_THAT(parsed.error(), HasSubstr("as in \"250ms\"")) << wrong;
  }
}

TEST(UnitsTest, SizesMayLackTheUnitInATextOnly) {
  EXPECT_EQ(parse_bytes("512"), 512);
  EXPECT_EQ(parse_bytes("512B"), 512);
  EXPECT_EQ(parse_bytes("4KiB"), 4096);
  EXPECT_EQ(parse_bytes("2MiB"), 2 << 20);
  EXPECT_EQ(parse_bytes("1GiB"), 1 << 30);
  EXPECT_EQ(parse_bytes("1TiB"), std::int64_t{1} << 40);
  for (const char* wrong : {"", "MiB", "2MB", "2mib", "0x10", "-1"}) {
    const auto parsed = parse_bytes(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_THAT(parsed.error(), HasSubstr("as in \"2MiB\"")) << wrong;
  }
}

TEST(UnitsTest, WhatDoesNotFitInto64BitsIsRefused) {
  EXPECT_EQ(parse_duration("9223372036854775807ns"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_duration("9223372036854775808ns").error(),
            "\"9223372036854775808ns\" is too large");
  EXPECT_EQ(parse_duration("9223372037s").error(), "\"9223372037s\" is too large");
  EXPECT_EQ(parse_bytes("8388608TiB").error(), "\"8388608TiB\" is too large");
}

TEST(UnitsTest, ShownIsTheLargestUnitThatIsExact) {
  EXPECT_EQ(show_duration(5'000'000'000), "5s");
  EXPECT_EQ(show_duration(1'500'000'000), "1500ms");
  EXPECT_EQ(show_duration(60'000'000'000), "1min");
  EXPECT_EQ(show_duration(0), "0ns");
  EXPECT_EQ(show_bytes(8 << 20), "8MiB");
  EXPECT_EQ(show_bytes(513), "513B");
  EXPECT_EQ(show_bytes(0), "0B");
}

TEST(UnitsTest, HexIsPairsOfDigits) {
  EXPECT_EQ(parse_hex("00 00 05 fF"), std::string("\0\0\5\xff", 4));
  EXPECT_EQ(parse_hex("000005ff"), std::string("\0\0\5\xff", 4));
  EXPECT_EQ(parse_hex(""), std::string());
  EXPECT_THAT(parse_hex("0g").error(), HasSubstr("\"g\" is no hexadecimal digit"));
  EXPECT_THAT(parse_hex("0 0").error(), HasSubstr("one digit only"));
  EXPECT_THAT(parse_hex("000").error(), HasSubstr("an odd number of digits"));
}

TEST(UnitsTest, TemplatesAreTheNamesInBraces) {
  EXPECT_THAT(*template_names("/tmp/x"), IsEmpty());
  EXPECT_THAT(*template_names("{run}/a/{worker.socket}"), ElementsAre("run", "worker.socket"));
  EXPECT_FALSE(template_names("{run"));
  EXPECT_FALSE(template_names("run}"));
  EXPECT_FALSE(template_names("{{run}}"));
  EXPECT_FALSE(template_names("{}"));
}

TEST(AddressTest, EveryPartButTheNameIsOptional) {
  const auto whole = parse_address("vmm.map[4]#2@worker/stop");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->site, "vmm.map");
  EXPECT_EQ(whole->key, 4);
  EXPECT_EQ(whole->hit, 2u);
  EXPECT_EQ(whole->process, "worker");
  EXPECT_EQ(whole->thread, "stop");
  const auto bare = parse_address("vmm.map.done");
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->site, "vmm.map.done");
  EXPECT_FALSE(bare->key);
  EXPECT_FALSE(bare->hit);
  EXPECT_EQ(bare->process, "");
  EXPECT_EQ(bare->thread, "");
  EXPECT_EQ(parse_address("a[-1]")->key, -1);
}

TEST(AddressTest, AThreadsLabelMayHoldAnything) {
  const auto address = parse_address("vmm.map@worker/first #2 @[x]/y");
  ASSERT_TRUE(address) << address.error();
  EXPECT_EQ(address->process, "worker");
  EXPECT_EQ(address->thread, "first #2 @[x]/y");
}

TEST(AddressTest, WrittenAndReadIsTheSame) {
  for (const char* text : {"a", "a[0]", "a#1", "a@p", "a/t", "a[-3]#7@p/t", "a.done[9]/x y"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(to_string(*address), text);
  }
}

TEST(AddressTest, SaysWhichPartIsWrong) {
  const auto error = [](const char* text) {
    const auto address = parse_address(text);
    return address ? std::string("none") : address.error();
  };
  EXPECT_EQ(error(""), "\"\": no name, expected name[key]#hit@process/thread");
  EXPECT_THAT(error("[4]"), HasSubstr("no name"));
  EXPECT_THAT(error("a[x]"), HasSubstr("the key is no number"));
  EXPECT_THAT(error("a4]"), HasSubstr("\"]\" without \"[\""));
  EXPECT_THAT(error("a[4"), HasSubstr("not a name"));
  EXPECT_THAT(error("a#0"), HasSubstr("the hit is no number from 1 on"));
  EXPECT_THAT(error("a#x"), HasSubstr("the hit is no number from 1 on"));
  EXPECT_THAT(error("a@"), HasSubstr("no process after \"@\""));
  EXPECT_THAT(error("a/"), HasSubstr("no thread after \"/\""));
  EXPECT_THAT(error("a b"), HasSubstr("not a name"));
}

}  // namespace
}  // namespace kv::drill
