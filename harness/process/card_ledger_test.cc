#include "harness/process/card_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "harness/process/leftovers.h"

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A ledger as the card writes it, and ways to spoil it.
struct Ledger {
  LedgerHeader header{};
  LedgerDevice devices[2] = {{1 << 30, 6 << 20}, {1 << 29, 0}};
  LedgerOwner owners[3] = {};

  Ledger() {
    std::memcpy(header.magic, "kvcard1", 8);
    header.version = 1;
    header.devices = 2;
    header.device_size = sizeof(LedgerDevice);
    header.owners = 3;
    header.owner_size = sizeof(LedgerOwner);
    header.owner_capacity = 3;
    header.devices_offset = sizeof(LedgerHeader);
    header.owners_offset = sizeof(LedgerHeader) + sizeof devices;
    owners[0].pid = 41;
    std::memcpy(owners[0].process, "worker", 6);
    owners[0].bytes = 6 << 20;
    owners[0].handles = 3;
    owners[0].mappings = 2;
    owners[0].reservations = 1;
    owners[0].allocations = 4;
    owners[0].contexts = 5;
    owners[2].pid = 42;
    std::memset(owners[2].process, 'n', sizeof owners[2].process);  // without an end
  }
};

class CardLedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kdgXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/ledger";
  }
  void TearDown() override { remove_tree(folder_); }

  void write(const Ledger& ledger, std::size_t size = sizeof(Ledger)) const {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(&ledger), static_cast<std::streamsize>(size));
  }
  std::string why(const std::function<void(Ledger*)>& spoil, std::size_t size = sizeof(Ledger)) {
    Ledger ledger;
    spoil(&ledger);
    write(ledger, size);
    const auto state = read_ledger(path_);
    if (state) return "(read)";
    EXPECT_THAT(state.error(), HasSubstr(path_));
    return state.error();
  }
  std::string folder_, path_;
};

TEST_F(CardLedgerTest, SaysWhatEachProcessHolds) {
  write(Ledger());
  const auto state = read_ledger(path_);
  ASSERT_TRUE(state.has_value()) << state.error();
  ASSERT_THAT(state->devices, SizeIs(2));
  EXPECT_EQ(state->devices[0].total_bytes, 1u << 30);
  EXPECT_EQ(state->devices[0].used_bytes, 6u << 20);
  ASSERT_THAT(state->owners, SizeIs(2)) << "the slot without a pid is not filled in yet";
  const Holding& worker = state->owners[0];
  EXPECT_EQ(worker.pid, 41);
  EXPECT_EQ(worker.process, "worker");
  EXPECT_EQ(worker.bytes, 6u << 20);
  EXPECT_EQ(worker.handles, 3u);
  EXPECT_EQ(worker.mappings, 2u);
  EXPECT_EQ(worker.reservations, 1u);
  EXPECT_EQ(worker.allocations, 4u);
  EXPECT_EQ(worker.contexts, 5u);
  EXPECT_EQ(state->owners[1].process, std::string(48, 'n'));
}

TEST_F(CardLedgerTest, AnAbsentLedgerIsACardThatNobodyTouched) {
  const auto state = read_ledger(path_);
  ASSERT_TRUE(state.has_value());
  EXPECT_THAT(state->devices, IsEmpty());
  EXPECT_THAT(state->owners, IsEmpty());
}

TEST_F(CardLedgerTest, OwnersBeyondTheUsedOnesAreNotRead) {
  EXPECT_EQ(why([](Ledger* l) { l->header.owners = 1; }), "(read)");
  EXPECT_THAT(read_ledger(path_)->owners, SizeIs(1));
}

TEST_F(CardLedgerTest, RefusesWhatIsNotALedger) {
  const auto nothing = [](Ledger*) {};
  EXPECT_THAT(why(nothing, 0), HasSubstr("it holds 0 bytes, its header 56"));
  EXPECT_THAT(why(nothing, 55), HasSubstr("it holds 55 bytes"));
  EXPECT_THAT(why([](Ledger* l) { l->header.magic[7] = '!'; }), HasSubstr("does not begin with"));
  EXPECT_THAT(why([](Ledger* l) { l->header.version = 2; }), HasSubstr("version 2, expected 1"));
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_THAT(read_ledger(folder_).error(), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(read_ledger(path_).error(), HasSubstr("not a regular file")) << "and does not block";
  EXPECT_THAT(read_ledger(path_ + "/x").error(), HasSubstr("Not a directory"));
}

TEST_F(CardLedgerTest, RefusesTablesThatDoNotLieInTheFile) {
  const auto nothing = [](Ledger*) {};
  EXPECT_THAT(why(nothing, sizeof(Ledger) - 1), HasSubstr("3 owners at offset 88 reach beyond"));
  EXPECT_THAT(why(nothing, 60), HasSubstr("2 devices at offset 56 reach beyond its end at 60"));
  EXPECT_THAT(why([](Ledger* l) { l->header.device_size = 8; }),
              HasSubstr("devices of 8 bytes each, expected 16"));
  EXPECT_THAT(why([](Ledger* l) { l->header.owner_size = 0; }),
              HasSubstr("owners of 0 bytes each, expected 120"));
  EXPECT_THAT(why([](Ledger* l) { l->header.devices_offset = 8; }),
              HasSubstr("devices at offset 8, expected"));
  EXPECT_THAT(why([](Ledger* l) { l->header.owners_offset += 4; }),
              HasSubstr("owners at offset 92, expected a multiple of 8"));
  EXPECT_THAT(why([](Ledger* l) { l->header.owners_offset = ~std::uint64_t{7}; }),
              HasSubstr("reach beyond its end"));
  EXPECT_THAT(why([](Ledger* l) { l->header.devices = 0xffffffff; }),
              HasSubstr("4294967295 devices, expected at most 1024"));
  EXPECT_THAT(why([](Ledger* l) { l->header.owners = 4; }), HasSubstr("4 owners of 3"));
  EXPECT_THAT(why([](Ledger* l) { l->header.owners = l->header.owner_capacity = 0xffffffff; }),
              HasSubstr("owners of 4294967295, expected at most"));
  EXPECT_THAT(why([](Ledger* l) { l->header.owners = l->header.owner_capacity = 1 << 20; }),
              HasSubstr("1048576 owners at offset 88 reach beyond"));
}

TEST_F(CardLedgerTest, TheFakeCardIsKnownByItsSymbolsWhereverItLies) {
  const std::string name("\0kvcardHoldStream\0", 18);
  for (const std::size_t before : {std::size_t{0}, std::size_t{1000}, (std::size_t{1} << 20) - 7}) {
    std::ofstream(path_, std::ios::binary) << std::string(before, 'x') << name << "rest";
    EXPECT_TRUE(is_fake_card(path_)) << before;
  }
  std::ofstream(path_, std::ios::binary) << "kvcardHoldStream";
  EXPECT_FALSE(is_fake_card(path_)) << "a text that speaks of it";
  EXPECT_FALSE(is_fake_card(path_ + ".absent"));
}

}  // namespace
}  // namespace kv::drill
