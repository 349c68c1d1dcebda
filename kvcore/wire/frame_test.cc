#include "kvcore/wire/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace kv {
namespace {

using namespace std::string_literals;  // NOLINT: texts with zero bytes in them
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using State = FrameReader::State;

std::string frame(const std::string& body) {
  return encode_frame(body).value();
}

// Feeds the stream in reads of at most `piece` bytes; the bodies of its frames, in order.
std::vector<std::string> bodies(FrameReader& reader, std::string_view stream, std::size_t piece) {
  std::vector<std::string> all;
  while (!stream.empty()) {
    const auto part = reader.want();
    EXPECT_TRUE(part.ok());
    const std::size_t n = std::min({piece, part->size, stream.size()});
    std::memcpy(part->data, stream.data(), n);
    stream.remove_prefix(n);
    EXPECT_TRUE(reader.got(n).ok());
    while (reader.complete()) {
      all.emplace_back(reader.body());
      EXPECT_TRUE(reader.next().ok());
    }
  }
  return all;
}

Status feed(FrameReader& reader, std::string_view bytes) {
  const auto part = reader.want();
  EXPECT_TRUE(part.ok() && part->size >= bytes.size());
  std::memcpy(part->data, bytes.data(), bytes.size());
  return reader.got(bytes.size());
}

TEST(FrameEncode, PutsTheLengthInFrontBigEndian) {
  EXPECT_EQ(frame("abc"), "\0\0\0\3abc"s);
  EXPECT_EQ(frame(""), "\0\0\0\0"s);
  EXPECT_EQ(frame(std::string(0x010203, 'x')).substr(0, 4), "\0\1\2\3"s);
}

TEST(FrameEncode, SealsInPlace) {
  std::string built = "????abcd";
  EXPECT_TRUE(seal_frame(built).ok());
  EXPECT_EQ(built, "\0\0\0\4abcd"s);
  built = "???";
  EXPECT_EQ(seal_frame(built).code(), Code::kInvalidArgument);
}

TEST(FrameReader, GivesTheSameFramesHoweverTheBytesArrive) {
  const std::string large(10'000, 'z');
  const std::string stream = frame("one") + frame("") + frame(large) + frame("two") + frame("");
  for (const std::size_t piece : {1u, 2u, 3u, 4u, 5u, 7u, 64u, 4096u, 1u << 20}) {
    FrameReader reader(1 << 20);
    EXPECT_THAT(bodies(reader, stream, piece), ElementsAre("one", "", large, "two", ""))
        << "in pieces of " << piece;
    EXPECT_EQ(reader.state(), State::kHeader);
    EXPECT_EQ(reader.have(), 0u);
  }
}

TEST(FrameReader, TakesASmallFrameInOneRead) {
  FrameReader reader(1 << 20);
  ASSERT_TRUE(feed(reader, frame("request")).ok());
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(reader.body(), "request");
}

TEST(FrameReader, TellsHowFarThePartIs) {
  FrameReader reader(100);
  EXPECT_EQ(reader.state(), State::kHeader);
  EXPECT_EQ(reader.have(), 0u);
  ASSERT_TRUE(feed(reader, "\0\0"s).ok());
  EXPECT_EQ(reader.state(), State::kHeader);
  EXPECT_EQ(reader.have(), 2u);
  EXPECT_EQ(reader.size(), 0u);
  ASSERT_TRUE(feed(reader, "\0\5"s).ok());
  EXPECT_EQ(reader.state(), State::kBody);
  EXPECT_EQ(reader.have(), 0u);
  EXPECT_EQ(reader.size(), 5u);
  ASSERT_TRUE(feed(reader, "abcd").ok());
  EXPECT_EQ(reader.have(), 4u);
  EXPECT_EQ(reader.body(), "");
  ASSERT_TRUE(feed(reader, "e12").ok());
  EXPECT_EQ(reader.state(), State::kComplete);
  EXPECT_EQ(reader.have(), 5u);
  EXPECT_EQ(reader.body(), "abcde");
  // What came of the next frame is not lost.
  ASSERT_TRUE(reader.next().ok());
  EXPECT_EQ(reader.state(), State::kHeader);
  EXPECT_EQ(reader.have(), 2u);
}

TEST(FrameReader, RefusesLengthsOverTheLimitAndNegativeOnes) {
  const auto refuse = [](const std::string& header, const std::string& why) {
    FrameReader reader(100);
    const Status status = feed(reader, header);
    EXPECT_EQ(status.code(), Code::kProtocol);
    EXPECT_THAT(status.to_string(), HasSubstr(why));
    EXPECT_EQ(reader.state(), State::kFailed);
    EXPECT_EQ(reader.body(), "");
  };
  refuse("\0\0\0\x65"s, "101 bytes; expected 0 to 100");
  refuse("\xff\xff\xff\xff"s, "-1 bytes; expected 0 to 100");
  refuse("\x80\0\0\0"s, "-2147483648 bytes");
  refuse("\x7f\xff\xff\xff"s, "2147483647 bytes");
  FrameReader reader(100);
  EXPECT_TRUE(feed(reader, "\0\0\0\x64"s).ok());

  FrameReader generous(0xffffffff);
  EXPECT_EQ(feed(generous, "\x80\0\0\0"s).code(), Code::kProtocol);
}

TEST(FrameReader, RefusesABadLengthBehindAGoodFrame) {
  FrameReader reader(100);
  ASSERT_TRUE(feed(reader, frame("good") + "\xff\xff\xff\xff").ok());
  EXPECT_EQ(reader.body(), "good");
  EXPECT_EQ(reader.next().code(), Code::kProtocol);
  EXPECT_EQ(reader.state(), State::kFailed);
}

TEST(FrameReader, AClaimedLengthCostsNothingBeforeItsBytesCome) {
  FrameReader reader(0x7fffffff);
  std::size_t arrived = 0;
  ASSERT_TRUE(feed(reader, "\x7f\xff\xff\xff"s).ok());
  for (int reads = 0; reads < 100; ++reads) {
    const auto part = reader.want();
    ASSERT_TRUE(part.ok());
    EXPECT_LE(part->size, std::max<std::size_t>(4096, arrived + 4));
    const std::size_t n = std::min<std::size_t>(part->size, 1000);
    std::memset(part->data, 'x', n);
    ASSERT_TRUE(reader.got(n).ok());
    arrived += n;
  }
  EXPECT_EQ(reader.have(), arrived);
}

TEST(FrameReader, GivesALargeBufferBackAfterItsFrame) {
  FrameReader reader(1 << 20);
  EXPECT_EQ(bodies(reader, frame(std::string(500'000, 'x')), 1 << 20).size(), 1u);
  const auto part = reader.want();
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->size, 4096u);
}

TEST(FrameReader, ReadsFramesThatStraddleItsBuffersEnd) {
  // Each frame is a little over a third of the buffer, so its place in it shifts all the time.
  std::string stream;
  for (int i = 0; i < 100; ++i) stream += frame(std::string(1500, static_cast<char>('a' + i % 26)));
  FrameReader reader(1 << 20);
  const auto all = bodies(reader, stream, 4096);
  ASSERT_EQ(all.size(), 100u);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(all[i], std::string(1500, static_cast<char>('a' + i % 26)));
}

}  // namespace
}  // namespace kv
