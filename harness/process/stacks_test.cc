#include "harness/process/stacks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;

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

// A frame of this very program.
__attribute__((noinline)) std::uintptr_t own_place() {
  return reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) - 1;
}

// Where this program begins in memory.
std::uintptr_t base() {
  std::ifstream maps("/proc/self/maps");
  std::uintptr_t begin = 0;
  maps >> std::hex >> begin;
  return begin;
}

TEST(Stacks, Addr2lineTellsFunctionsWithTheirLines) {
  const std::string addr2line = find_addr2line();
  if (addr2line.empty()) GTEST_SKIP() << "no addr2line on this machine";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto frames =
      looked_up(fmt::format("{}+{:#x}\n/no/such/module+0x1 f\n", self, own_place() - base()),
                addr2line, 60'000);
  ASSERT_EQ(frames.size(), 2u) << in_full(frames);
  EXPECT_THAT(frames[0].function, HasSubstr("TestBody"));
  EXPECT_THAT(frames[0].source, HasSubstr("stacks_test.cc:"));
  EXPECT_EQ(frames[1].function, "f") << "what it cannot tell stays";
}

TEST(Stacks, AnInlinedFunctionStandsBeforeTheOneItBecameAPartOf) {
  char folder[] = "/tmp/kdsXXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string program = std::string(folder) + "/a2l";
  std::ofstream(program) << "#!/bin/sh\nprintf '0x10\\nkv::inner()\\n/s/in.h:3 (discriminator 2)\\n"
                            "kv::outer()\\n/s/out.cc:9\\n0x20\\nnearest\\n??:?\\n'\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const auto frames = looked_up("/x/engine+0x10 _Z3oldv\n/x/engine+0x20\n", program, 60'000);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(in_full(frames),
            "    /x/engine+0x10\n        kv::inner() at /s/in.h:3\n"
            "        kv::outer() at /s/out.cc:9\n    /x/engine+0x20\n        ??\n")
      << "the module has no symbols of its own, so the nearest one is not taken";
  EXPECT_EQ(in_short(frames),
            "\n  kv::inner() (in.h:3)\n  kv::outer() (out.cc:9)\n  ?? (engine+0x20)");
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
