// Where pages and blocks lie: the arithmetic of the three ways in which engines arrange attention
// caches in device memory. Nothing here touches a driver.
//
//   per layer    one address range a layer, K in its first half and V in its second (one buffer for
//                MLA); an offset stands for one page in every buffer of every layer.
//   contiguous   one address range; an offset stands for one compound page, which holds the pages
//                of all layers and buffers one after the other. One driver call an offset.
//   unified      one address range a layer, K and V of a block side by side in the same page; an
//                offset stands for one page a layer.
//
// Threads, ownership: values.
// Source: the deployed engines' allocation units (page, block, layouts).
#ifndef KVCORE_MEMORY_KV_LAYOUT_H_
#define KVCORE_MEMORY_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvcore/base/status.h"

namespace kv {

enum class KvLayout : std::uint8_t { kPerLayer, kContiguous, kUnified };

// "per_layer", "contiguous", "unified".
const char* layout_name(KvLayout layout);
// False: no layout has this name.
bool layout_from_name(const std::string& name, KvLayout* layout);

struct KvShape {
  int layers = 1;
  int buffers = 2;               // 2: K and V; 1: a single buffer (MLA)
  std::size_t tensor_bytes = 0;  // of one layer, all buffers; a multiple of the pages of an offset
  std::size_t page_bytes = 2u << 20;  // a multiple of the driver's granularity
  KvLayout layout = KvLayout::kPerLayer;
  // Addresses without a page read zeros, all of one shared piece of memory, and cannot be written.
  // Without it work that touches one dies, and making tensors costs the same whatever their size;
  // with it each piece is mapped from the beginning, and a map or unmap takes twice the calls. Both
  // then take something off that work may read. They wait for the work in flight, but nobody else
  // may start any meanwhile: so not for a thread that maps ahead beside the engine's steps
  // (PageOptions::keeper).
  bool zero_page = false;
};

// kInvalidArgument, "allocator.create_tensors": the shape, and what was expected.
Status check_shape(const KvShape& shape, std::size_t granularity);

// A shape that was checked, worked out.
class KvPlan {
 public:
  explicit KvPlan(const KvShape& shape);

  int ranges() const { return ranges_; }                     // address ranges
  std::size_t range_bytes() const { return range_bytes_; }   // of each
  std::size_t piece_bytes() const { return piece_bytes_; }   // of one mapping, one handle
  int pieces() const { return ranges_ * pieces_in_range_; }  // of an offset
  std::size_t page_bytes() const { return page_bytes_; }     // offsets are multiples of it ...
  std::size_t extent() const { return extent_; }             // ... from 0 to below this

  // One mapping of an offset: which range, which half of it, and where in the range.
  struct Piece {
    int range = 0;
    int buffer = 0;
    std::size_t at = 0;
  };
  std::vector<Piece> pieces_of(std::size_t offset) const;
  // Where a byte of a buffer lies. `offset` counts within the buffer; unified: within the layer.
  Piece locate(int layer, int buffer, std::size_t offset) const;

 private:
  KvLayout layout_;
  int ranges_, pieces_in_range_, buffers_;
  std::size_t page_bytes_, piece_bytes_, extent_, range_bytes_;
};

// Blocks in pages: block i lies at i * block_bytes of its buffer, and those that would straddle two
// pages do not exist. Page p holds the blocks from ceil(p * page / block) to
// floor((p + 1) * page / block).
class BlockPlan {
 public:
  BlockPlan(std::size_t page_bytes, std::size_t block_bytes)
      : page_(page_bytes), block_(block_bytes) {}
  // kInvalidArgument: what is wrong; a block is at most a page.
  Status check() const;

  std::int64_t first(std::int64_t page) const {
    return static_cast<std::int64_t>((static_cast<std::size_t>(page) * page_ + block_ - 1) /
                                     block_);
  }
  std::int64_t end(std::int64_t page) const {
    return static_cast<std::int64_t>(static_cast<std::size_t>(page + 1) * page_ / block_);
  }
  std::int64_t count(std::int64_t page) const { return end(page) - first(page); }
  // The page that a block lies in; -1 where the block would straddle two, or is negative.
  std::int64_t page_of(std::int64_t block) const;
  // Blocks of any page are at least this many, and at most one more.
  std::int64_t least() const;

 private:
  std::size_t page_, block_;
};

}  // namespace kv

#endif  // KVCORE_MEMORY_KV_LAYOUT_H_
