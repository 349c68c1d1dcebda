#include "harness/process/stacks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Frame frame(std::string place, std::string function, std::string source = "") {
  return {std::move(place), std::move(function), std::move(source)};
}

TEST(Stacks, WhatAModuleDoesNotExportIsUnknown) {
  const auto frames = frames_of("/x/engine+0x10 _ZN2kv4boomEi\n/x/engine+0x20\nodd\n");
  EXPECT_EQ(in_full(frames),
            "    /x/engine+0x10\n        kv::boom(int)\n    /x/engine+0x20\n        ??\n"
            "    odd\n        ??\n");
  EXPECT_EQ(in_short(frames), "\n  kv::boom(int)\n  ?? (engine+0x20)");
}

TEST(Stacks, InShortTheEnginesOwnCodeComesFirstOneFunctionALine) {
  const std::vector<Frame> frames = {
      frame("/usr/lib/libc.so.6+0x1", "abort"),
      frame("/x/engine+0x9", "std::vector<int, std::allocator<int> >::at(unsigned long)",
            "/usr/include/c++/12/bits/stl_vector.h:90"),
      frame("/x/engine+0x9", "kv::boom(int)", "/src/kv/boom.cc:3"),
      frame("/x/libkvdrill.so+0x4", "kv::drill::run_command", "/src/harness/board/mailbox.cc:8"),
      frame("/x/engine+0x12", "main"),
      frame("/usr/lib/libc.so.6+0x7", "??")};
  EXPECT_EQ(in_short(frames), "\n  kv::boom(int) (boom.cc:3), inside abort\n  main");
  EXPECT_EQ(in_short({}), "");
  EXPECT_EQ(in_short({frame("/usr/lib/libc.so.6+0x1", "abort"), frame("?+0x0", "??")}),
            "\n  abort\n  ?? (?+0x0)")
      << "there is no own code";
  std::vector<Frame> many(9, frame("/x/engine+0x12", "f"));
  EXPECT_THAT(in_short(many), HasSubstr("\n  and 3 more"));
}

TEST(Stacks, TemplateArgumentsAreShortened) {
  EXPECT_EQ(shortened("f(int)"), "f(int)");
  EXPECT_EQ(shortened("std::map<int, std::less<int> >::find(int const&)"),
            "std::map<...>::find(int const&)");
  EXPECT_EQ(shortened("kv::operator<<(kv::A<(char)60>&)"), "kv::operator<<(kv::A<...>&)");
  EXPECT_EQ(shortened("A::operator->() const"), "A::operator->() const");
  EXPECT_EQ(shortened("bool operator< <int>(A<int>)"), "bool operator< <...>(A<...>)");
  EXPECT_EQ(shortened("(anonymous namespace)::f<decltype(a->b)>(" + std::string(200, 'x') + ")"),
            "(anonymous namespace)::f<...>(...)");
  EXPECT_EQ(shortened(std::string(300, 'x')), std::string(120, 'x') + "...");
}

// A frame of this very program, in a function that was inlined.
__attribute__((always_inline)) inline std::uintptr_t inlined_place() {
  std::uintptr_t here = 0;
#if defined(__x86_64__)
  asm volatile("lea (%%rip), %0" : "=r"(here));
#elif defined(__aarch64__)
  asm volatile("adr %0, ." : "=r"(here));
#endif
  return here;
}
__attribute__((noinline)) std::uintptr_t outer_place() {
  return inlined_place();
}

// Where this program begins in memory.
std::uintptr_t base() {
  std::ifstream maps("/proc/self/maps");
  std::uintptr_t begin = 0;
  maps >> std::hex >> begin;
  return begin;
}

TEST(Stacks, Addr2lineTellsInlinedFunctionsWithTheirLines) {
  const std::string addr2line = find_addr2line();
  if (addr2line.empty()) GTEST_SKIP() << "no addr2line on this machine";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto frames =
      looked_up(fmt::format("{}+{:#x}\n/no/such/module+0x1 f\n", self, outer_place() - base()),
                addr2line, 60'000);
  ASSERT_EQ(frames.size(), 3u) << in_full(frames);
  EXPECT_THAT(frames[0].function, HasSubstr("inlined_place"));
  EXPECT_THAT(frames[0].source, HasSubstr("stacks_test.cc:"));
  EXPECT_THAT(frames[1].function, HasSubstr("outer_place"));
  EXPECT_EQ(frames[0].place, frames[1].place);
  EXPECT_EQ(frames[2].function, "f") << "what it cannot tell stays";
  EXPECT_THAT(in_short(frames), Not(HasSubstr("??")));
}

// A library that was stripped exports few names, far apart.
TEST(Stacks, TheNearestNameOfAStrippedLibraryIsNotTaken) {
  const std::string addr2line = find_addr2line();
  if (addr2line.empty()) GTEST_SKIP() << "no addr2line on this machine";
  std::string libc;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; libc.empty() && std::getline(maps, line);) {
    if (line.ends_with("/libc.so.6")) libc = line.substr(line.find('/'));
  }
  if (libc.empty()) GTEST_SKIP() << "no libc.so.6 is mapped";
  const auto frames = looked_up(libc + "+0x29d0f\n", addr2line, 60'000);
  for (const Frame& one : frames) {
    EXPECT_TRUE(one.function == "??" || !one.source.empty()) << in_full(frames);
  }
}

}  // namespace
}  // namespace kv::drill
