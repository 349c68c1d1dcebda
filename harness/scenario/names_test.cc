#include "harness/scenario/names.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

namespace kv::drill {
namespace {

const std::vector<std::string> kPoints = {"listener.read.body", "listener.read.header",
                                          "listener.reply", "vmm.map", "vmm.unmap"};

TEST(NearestTest, FindsASlipOfThePen) {
  EXPECT_EQ(nearest("listener.raed.body", kPoints), "listener.read.body");
  EXPECT_EQ(nearest("listner.reply", kPoints), "listener.reply");
  EXPECT_EQ(nearest("vmm.mpa", kPoints), "vmm.map");
  EXPECT_EQ(nearest("VMM.MAP", kPoints), "vmm.map");
}

TEST(NearestTest, FindsAWordByItsBeginningOrItsEnd) {
  EXPECT_EQ(nearest("listener.read", kPoints), "listener.read.body");
  EXPECT_EQ(nearest("header", kPoints), "listener.read.header");
  EXPECT_EQ(nearest("listener.read.body.begin", {"listener.read.body"}), "listener.read.body");
}

TEST(NearestTest, PrefersASlipToABeginning) {
  EXPECT_EQ(nearest("sto", {"store.everything", "stop"}), "stop");
}

TEST(NearestTest, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest("transfer.lease", kPoints), "");
  EXPECT_EQ(nearest("", kPoints), "");
  EXPECT_EQ(nearest("x", {"y", "z"}), "");
  EXPECT_EQ(nearest("a", {}), "");
  EXPECT_EQ(nearest(std::string(100'000, 'a'), {std::string(100'000, 'a')}), "");
}

TEST(NamesTest, NumbersOfNames) {
  EXPECT_EQ(errno_by_name("EPIPE"), EPIPE);
  EXPECT_EQ(errno_by_name("ECONNRESET"), ECONNRESET);
  EXPECT_FALSE(errno_by_name("epipe"));
  EXPECT_EQ(signal_by_name("TERM"), SIGTERM);
  EXPECT_EQ(signal_by_name("SIGKILL"), SIGKILL);
  EXPECT_FALSE(signal_by_name("SIG"));
  EXPECT_FALSE(signal_by_name("15"));
  EXPECT_EQ(result_by_name("CUDA_ERROR_OUT_OF_MEMORY"), 2);
  EXPECT_EQ(result_by_name("CUDA_ERROR_ILLEGAL_ADDRESS"), 700);
  EXPECT_FALSE(result_by_name("CUDA_SUCCESS"));
}

TEST(NamesTest, EveryNameIsFoundAgain) {
  for (const std::string& name : errno_names()) EXPECT_TRUE(errno_by_name(name)) << name;
  for (const std::string& name : result_names()) EXPECT_TRUE(result_by_name(name)) << name;
  for (const std::string& name : signal_names()) {
    const auto signal = signal_by_name(name);
    ASSERT_TRUE(signal) << name;
    EXPECT_EQ(short_signal_name(*signal), name);
  }
  EXPECT_EQ(short_signal_name(42), "42");
}

TEST(NamesTest, ExpectedWordsAreListedOrCounted) {
  EXPECT_EQ(expected_one("mpa", {"map", "unmap"}), ", expected one of map, unmap (nearest: map)");
  EXPECT_EQ(expected_one("workr", {"worker"}), ", expected worker");
  EXPECT_EQ(expected_one("x", {}), ", expected none (there is none)");
  std::vector<std::string> many;
  for (char c = 'a'; c <= 'z'; ++c) many.push_back(std::string("name.") + c);
  EXPECT_EQ(expected_one("zzz", many), ", expected one of 26, such as name.a, name.b or name.c");
  EXPECT_EQ(expected_one("nmae.c", many), ", expected one of 26 (nearest: name.c)");
}

}  // namespace
}  // namespace kv::drill
