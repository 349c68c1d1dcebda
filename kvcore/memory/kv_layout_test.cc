// The arithmetic of layouts and blocks, against slow and obvious counting.
#include "kvcore/memory/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kv {
namespace {

constexpr std::size_t kPage = 4096;

KvShape shape(KvLayout layout, int layers, int buffers, std::size_t pages) {
  KvShape shape;
  shape.layout = layout;
  shape.layers = layers;
  shape.buffers = buffers;
  shape.page_bytes = kPage;
  shape.tensor_bytes = pages * kPage * static_cast<std::size_t>(buffers);
  return shape;
}

TEST(KvPlan, APageOfEveryBufferOfEveryLayerPerLayer) {
  const KvPlan plan(shape(KvLayout::kPerLayer, 3, 2, 5));
  EXPECT_EQ(plan.ranges(), 3);
  EXPECT_EQ(plan.range_bytes(), 10 * kPage);
  EXPECT_EQ(plan.piece_bytes(), kPage);
  EXPECT_EQ(plan.pieces(), 6);
  EXPECT_EQ(plan.extent(), 5 * kPage);
  const auto pieces = plan.pieces_of(2 * kPage);
  ASSERT_EQ(pieces.size(), 6u);
  EXPECT_EQ(pieces[3].range, 1);
  EXPECT_EQ(pieces[3].buffer, 1);
  EXPECT_EQ(pieces[3].at, 7 * kPage);
}

TEST(KvPlan, OneCompoundPageForAllWhenContiguous) {
  const KvPlan plan(shape(KvLayout::kContiguous, 3, 2, 5));
  EXPECT_EQ(plan.ranges(), 1);
  EXPECT_EQ(plan.range_bytes(), 30 * kPage);
  EXPECT_EQ(plan.piece_bytes(), 6 * kPage);
  EXPECT_EQ(plan.pieces(), 1);
  EXPECT_EQ(plan.pieces_of(2 * kPage).at(0).at, 12 * kPage);
  // Byte 5 of page 2 of V of layer 1 lies in the fourth part of compound page 2.
  EXPECT_EQ(plan.locate(1, 1, 2 * kPage + 5).at, 12 * kPage + 3 * kPage + 5);
}

TEST(KvPlan, OnePageALayerWhenUnified) {
  const KvPlan plan(shape(KvLayout::kUnified, 3, 2, 5));
  EXPECT_EQ(plan.ranges(), 3);
  EXPECT_EQ(plan.pieces(), 3);
  EXPECT_EQ(plan.extent(), 10 * kPage);
  EXPECT_EQ(plan.pieces_of(9 * kPage).at(2).at, 9 * kPage);
}

// Whatever the layout: no two bytes of the caches lie at one address, every byte lies in the piece
// that its offset maps, and all pieces of all offsets fill the ranges.
TEST(KvPlan, EveryByteHasAPlaceOfItsOwnInThePagesOfItsOffset) {
  for (const KvLayout layout : {KvLayout::kPerLayer, KvLayout::kContiguous, KvLayout::kUnified}) {
    for (const int buffers : {1, 2}) {
      const KvPlan plan(shape(layout, 3, buffers, 4));
      std::set<std::pair<int, std::size_t>> seen;
      const int rows = layout == KvLayout::kUnified ? 1 : buffers;
      for (int layer = 0; layer < 3; ++layer) {
        for (int buffer = 0; buffer < rows; ++buffer) {
          for (std::size_t byte = 0; byte < plan.extent(); byte += kPage / 2) {
            const auto at = plan.locate(layer, buffer, byte);
            EXPECT_TRUE(seen.emplace(at.range, at.at).second) << layout_name(layout);
            bool inside = false;
            for (const auto& piece : plan.pieces_of(byte / kPage * kPage)) {
              inside = inside || (piece.range == at.range && piece.at <= at.at &&
                                  at.at < piece.at + plan.piece_bytes());
            }
            EXPECT_TRUE(inside) << layout_name(layout) << " byte " << byte;
          }
        }
      }
      EXPECT_EQ(seen.size() * kPage / 2,
                static_cast<std::size_t>(plan.ranges()) * plan.range_bytes());
    }
  }
}

TEST(KvLayout, NamesGoBothWays) {
  for (const KvLayout layout : {KvLayout::kPerLayer, KvLayout::kContiguous, KvLayout::kUnified}) {
    KvLayout again = KvLayout::kPerLayer;
    EXPECT_TRUE(layout_from_name(layout_name(layout), &again));
    EXPECT_EQ(again, layout);
  }
  KvLayout unchanged = KvLayout::kUnified;
  EXPECT_FALSE(layout_from_name("per layer", &unchanged));
}

TEST(BlockPlan, BlocksNeverStraddleAPage) {
  for (const std::size_t block : {1u, 3u, 7u, 64u, 100u, 333u, 1000u}) {
    const std::size_t page = 1000;
    const BlockPlan plan(page, block);
    std::map<std::int64_t, std::int64_t> counted;
    for (std::int64_t i = 0; static_cast<std::size_t>(i) * block < 10 * page; ++i) {
      const std::size_t begin = static_cast<std::size_t>(i) * block, last = begin + block - 1;
      const bool whole = begin / page == last / page;
      EXPECT_EQ(plan.page_of(i), whole ? static_cast<std::int64_t>(begin / page) : -1);
      if (whole) ++counted[static_cast<std::int64_t>(begin / page)];
    }
    for (std::int64_t p = 0; p < 9; ++p) {
      EXPECT_EQ(plan.count(p), counted[p]) << "block " << block << " page " << p;
      EXPECT_GE(plan.count(p), plan.least());
      EXPECT_LE(plan.count(p), plan.least() + 1);
    }
  }
}

TEST(BlockPlan, ABlockIsAtMostAPage) {
  EXPECT_TRUE(BlockPlan(4096, 4096).check().ok());
  EXPECT_EQ(BlockPlan(4096, 4097).check().code(), Code::kInvalidArgument);
  EXPECT_EQ(BlockPlan(4096, 0).check().code(), Code::kInvalidArgument);
  EXPECT_EQ(BlockPlan(4096, 64).page_of(-1), -1);
}

}  // namespace
}  // namespace kv
