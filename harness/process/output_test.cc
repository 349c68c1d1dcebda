#include "harness/process/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;

class OutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kdoXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/out";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Writes as a process would, and takes whenever the pipe is full.
  static void write(Output& output, std::string_view text) {
    const int fd = output.writing_end();
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    while (!text.empty()) {
      const ssize_t done = ::write(fd, text.data(), text.size());
      if (done > 0) text.remove_prefix(static_cast<std::size_t>(done));
      if (done < 0) {
        ASSERT_EQ(errno, EAGAIN);
        output.take();
      }
    }
  }
  std::string file() const {
    std::ifstream stream(path_);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  // So many bytes, of which no part is like another.
  static std::string numbers(std::size_t bytes) {
    std::string text;
    for (int i = 0; text.size() < bytes; ++i) text += std::to_string(i) + " ";
    text.resize(bytes);
    return text;
  }

  std::string folder_, path_;
};

TEST_F(OutputTest, WhatFitsIsKeptWhole) {
  std::ofstream(path_) << "of an earlier run, and much longer than what follows\n";
  auto output = Output::make(path_);
  ASSERT_TRUE(output) << output.error();
  write(*output, "one\ntwo\n");
  output->settle();
  EXPECT_EQ(file(), "one\ntwo\n");
  EXPECT_EQ(output->left_out(), 0u);
}

TEST_F(OutputTest, ExactlyBeginningAndEndIsKeptWholeAndOneByteMoreIsNot) {
  auto output = Output::make(path_);
  ASSERT_TRUE(output) << output.error();
  const std::string text = numbers(Output::kHead + Output::kTail);
  write(*output, text);
  output->settle();
  EXPECT_TRUE(file() == text);
  write(*output, "!");
  output->settle();
  EXPECT_EQ(output->left_out(), 1u);
  EXPECT_EQ(output->written(), text.size() + 1);
  EXPECT_TRUE(file() == text.substr(0, Output::kHead) +
                            "\n[kvdrill: 1 of 2097153 bytes are left "
                            "out here]\n" +
                            text.substr(Output::kHead + 1) + "!");
}

TEST_F(OutputTest, OfMuchTheBeginningAndTheEndAreKeptHoweverOftenItIsLookedAt) {
  auto output = Output::make(path_);
  ASSERT_TRUE(output) << output.error();
  const std::string text = numbers(9 * Output::kHead + 12'345);
  for (std::size_t at = 0; at < text.size(); at += 1'000'000) {
    write(*output, std::string_view(text).substr(at, 1'000'000));
    output->settle();
  }
  EXPECT_EQ(output->left_out(), text.size() - Output::kHead - Output::kTail);
  EXPECT_TRUE(file().starts_with(text.substr(0, Output::kHead) + "\n[kvdrill: "));
  EXPECT_TRUE(file().ends_with("here]\n" + text.substr(text.size() - Output::kTail)));
}

TEST_F(OutputTest, ItEndsWhenNobodyCanWriteAnyMore) {
  auto output = Output::make(path_);
  ASSERT_TRUE(output) << output.error();
  write(*output, "last words");
  output->take();
  EXPECT_GE(output->fd(), 0);
  output->close_writing_end();
  output->take();
  EXPECT_EQ(output->fd(), -1);
  output->settle();
  EXPECT_EQ(file(), "last words");
}

TEST_F(OutputTest, APlaceThatCannotBeWrittenIsRefused) {
  const auto refused = Output::make("/no/such/out");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), "output file /no/such/out: No such file or directory");
  std::filesystem::create_symlink(folder_ + "/elsewhere", path_);
  const auto link = Output::make(path_);
  ASSERT_FALSE(link) << "a link may lead anywhere";
  EXPECT_THAT(link.error(), HasSubstr(path_));
}

}  // namespace
}  // namespace kv::drill
