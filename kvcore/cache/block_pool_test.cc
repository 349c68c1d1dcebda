// Which page the next blocks come from, and what a block's state is.
#include "kvcore/cache/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace kv {
namespace {

using ::testing::ElementsAre;
using Block = BlockPool::Block;

std::vector<std::int64_t> take(BlockPool& pool, std::int64_t n) {
  std::vector<std::int64_t> blocks;
  pool.take(n, &blocks);
  return blocks;
}

// Pages of 4 blocks.
BlockPool four_pages() {
  return {BlockPlan(4096, 1024), 4};
}

TEST(BlockPool, TakesFromTheFullestPageThatHasRoomForAll) {
  BlockPool pool = four_pages();
  pool.open(0);
  pool.open(1);
  EXPECT_THAT(take(pool, 1), ElementsAre(4));     // page 1 was opened last
  EXPECT_THAT(take(pool, 2), ElementsAre(5, 6));  // fits there too
  EXPECT_THAT(take(pool, 2), ElementsAre(0, 1));  // does not
  EXPECT_THAT(take(pool, 1), ElementsAre(7));     // best fit
  EXPECT_EQ(pool.free_blocks(), 2);
}

TEST(BlockPool, WhatFitsNowhereTakesTheEmptiestPagesFirst) {
  BlockPool pool = four_pages();
  for (const int page : {0, 1, 2}) pool.open(page);
  EXPECT_EQ(take(pool, 3).size(), 3u);                      // page 2
  EXPECT_EQ(take(pool, 2).size(), 2u);                      // page 1
  EXPECT_THAT(take(pool, 5), ElementsAre(0, 1, 2, 3, 11));  // page 0 whole, then best fit
  EXPECT_EQ(pool.free_blocks(), 2);
}

TEST(BlockPool, ABlockHasOneState) {
  BlockPool pool = four_pages();
  EXPECT_EQ(pool.state(0), Block::kNone);
  pool.open(0);
  EXPECT_EQ(pool.state(0), Block::kFree);
  EXPECT_THAT(take(pool, 1), ElementsAre(0));
  EXPECT_EQ(pool.state(0), Block::kGiven);
  pool.set_given(0, false);
  EXPECT_EQ(pool.state(0), Block::kHeld);
  EXPECT_FALSE(pool.is_empty(0));
  EXPECT_EQ(pool.put(0), 0);
  EXPECT_EQ(pool.state(0), Block::kFree);
  EXPECT_TRUE(pool.is_empty(0));
  pool.close(0);
  EXPECT_EQ(pool.free_blocks(), 0);
  for (const std::int64_t block : {-1, 0, 15, 16, 1 << 30}) {
    EXPECT_EQ(pool.state(block), Block::kNone);
  }
}

TEST(BlockPool, BlocksOfARequestAreHeldUpToTheFirstThatIsNotGiven) {
  BlockPool pool = four_pages();
  pool.open(0);
  pool.open(1);
  take(pool, 7);  // page 1, and all but block 3 of page 0
  EXPECT_EQ(pool.hold({1, 5, 3, 2}), 2u);
  EXPECT_EQ(pool.state(5), Block::kHeld);
  EXPECT_EQ(pool.state(2), Block::kGiven);
  EXPECT_EQ(pool.hold({2, 2}), 1u) << "there twice";
  EXPECT_EQ(pool.hold({0, 8}), 1u) << "of a page that is not open";
  EXPECT_EQ(pool.hold({4, 6, 7}), 3u);
}

TEST(BlockPool, PuttingManyBlocksNamesEachPageThatItEmptiedOnce) {
  BlockPool pool = four_pages();
  pool.open(0);
  pool.open(1);
  take(pool, 8);
  std::vector<std::int64_t> emptied;
  pool.put({4, 0, 1, 5, 6, 2}, &emptied);
  EXPECT_THAT(emptied, ElementsAre());
  EXPECT_EQ(pool.free_in(0), 3);
  EXPECT_EQ(pool.free_blocks(), 6);
  pool.put({7, 3}, &emptied);
  EXPECT_THAT(emptied, ElementsAre(1, 0));
  EXPECT_THAT(take(pool, 4), ElementsAre(0, 1, 2, 3));
}

TEST(BlockPool, PagesOfManyBlocksAndOfUnequallyMany) {
  BlockPool pool(BlockPlan(1000, 7), 8);  // 142 or 143 blocks
  std::int64_t all = 0;
  for (int page = 0; page < 8; ++page) {
    pool.open(page);
    all += BlockPlan(1000, 7).count(page);
  }
  EXPECT_EQ(pool.free_blocks(), all);
  const auto blocks = take(pool, all);
  EXPECT_EQ(pool.free_blocks(), 0);
  for (const std::int64_t block : blocks) {
    EXPECT_EQ(pool.state(block), Block::kGiven);
    pool.put(block);
  }
  for (int page = 0; page < 8; ++page) EXPECT_TRUE(pool.is_empty(page));
}

}  // namespace
}  // namespace kv
