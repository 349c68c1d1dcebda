// The card answers what a real driver was recorded to answer: the probes are run against it, each
// in processes of its own, and every recorded fact is compared, or is in one of the two lists here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fakes/card/testing.h"

namespace kv::card {
namespace {

using Facts = std::map<std::string, nlohmann::json>;

// Facts that the card cannot have. A name that ends in '*' stands for all that begin so.
struct Excused {
  std::string_view fact, why;
};
constexpr Excused kExcused[] = {
    {"cost.us.*", "times of the real driver"},
    {"busy.us.*", "times of the real driver while a kernel runs"},
    {"unmap_under_kernel.unmap_ms", "a time"},
    {"kill_gives_back.reaped_ms", "a time"},
    {"kill_gives_back.all_back_ms", "a time"},
    {"two_devices.new_thread_runtime_device", "answered by the runtime library, not the driver"},
};

// Facts in which the real driver's own memory for a context shows; the card's contexts take none.
struct Adapted {
  std::string_view fact;
  double on_the_card;
};
constexpr Adapted kAdapted[] = {
    {"producer_killed.vmm.freed_bytes_beyond_context", 0},
    {"kill_gives_back.visible_in_other_process_bytes", 16.0 * (1u << 30)},
};

bool covers(std::string_view pattern, std::string_view fact) {
  if (pattern.back() != '*') return pattern == fact;
  pattern.remove_suffix(1);
  return fact.substr(0, pattern.size()) == pattern;
}

bool is_excused(std::string_view fact) {
  for (const Excused& excused : kExcused) {
    if (covers(excused.fact, fact)) return true;
  }
  return false;
}

void add(const std::string& line, Facts* facts) {
  nlohmann::json fact = nlohmann::json::parse(line);
  const std::string name = fact.at("fact");
  fact.erase("ms");  // how long the probe's process took
  EXPECT_TRUE(facts->emplace(name, fact).second) << name << " appears twice";
}

Facts recorded() {
  Facts facts;
  for (const char* name :
       {"cuda-driver-h200-580.159.jsonl", "cuda-driver-h200-580.159-more.jsonl"}) {
    std::ifstream file(std::string(KVDRILL_SOURCE_DIR "/fakes/card/facts/") + name);
    EXPECT_TRUE(file.is_open()) << name;
    for (std::string line; std::getline(file, line);) add(line, &facts);
  }
  for (const Adapted& adapted : kAdapted) {
    facts.at(std::string(adapted.fact))["value"] = adapted.on_the_card;
  }
  return facts;
}

Facts answered_by_the_card() {
  const CardFolder card(std::uint64_t{64} << 30, 2);
  const std::string command =
      KVDRILL_BUILD_DIR "/card/kvprobe " + kLibrary + " 2>" + card.file("stderr");
  FILE* output = ::popen(command.c_str(), "r");
  Facts facts;
  std::array<char, 512> line = {};
  while (std::fgets(line.data(), static_cast<int>(line.size()), output) != nullptr) {
    add(line.data(), &facts);
  }
  const int status = ::pclose(output);
  std::ifstream errors(card.file("stderr"));
  EXPECT_EQ(status, 0) << std::string(std::istreambuf_iterator<char>(errors), {});
  return facts;
}

TEST(Facts, EveryRecordedFactHoldsOnTheCard) {
  const Facts expected = recorded();
  const Facts answered = answered_by_the_card();
  EXPECT_EQ(expected.size(), 176u + 87u);
  for (const auto& [name, fact] : expected) {
    const auto found = answered.find(name);
    if (found == answered.end()) {
      EXPECT_TRUE(is_excused(name)) << name << " is neither probed nor excused";
    } else {
      EXPECT_FALSE(is_excused(name)) << name << " is probed and excused";
      EXPECT_EQ(found->second, fact);
    }
  }
  for (const auto& [name, fact] : answered) {
    EXPECT_TRUE(expected.contains(name)) << name << " was never recorded";
  }
}

TEST(Facts, EveryExcuseIsNeeded) {
  const Facts facts = recorded();
  for (const Excused& excused : kExcused) {
    const bool used = std::any_of(facts.begin(), facts.end(), [&](const auto& fact) {
      return covers(excused.fact, fact.first);
    });
    EXPECT_TRUE(used) << excused.fact;
  }
}

}  // namespace
}  // namespace kv::card
