#include "kvcore/memory/kv_layout.h"

#include <algorithm>
#include <array>
#include <string>

namespace kv {
namespace {

constexpr int kMostLayers = 1 << 16;  // a bound against nonsense, far above any model
constexpr std::array<const char*, 3> kNames{"per_layer", "contiguous", "unified"};

std::string text_of(const KvShape& shape) {
  return std::to_string(shape.layers) + " layers of " + std::to_string(shape.tensor_bytes) +
         " bytes, " + std::to_string(shape.buffers) + " buffers, pages of " +
         std::to_string(shape.page_bytes) + ", " + layout_name(shape.layout);
}

// Bytes of a tensor that one offset takes.
std::size_t unit(const KvShape& shape) {
  const int pages = shape.layout == KvLayout::kUnified ? 1 : shape.buffers;
  return static_cast<std::size_t>(pages) * shape.page_bytes;
}

}  // namespace

const char* layout_name(KvLayout layout) {
  return kNames.at(static_cast<std::size_t>(layout));
}

bool layout_from_name(const std::string& name, KvLayout* layout) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return false;
  *layout = static_cast<KvLayout>(found - kNames.begin());
  return true;
}

Status check_shape(const KvShape& shape, std::size_t granularity) {
  std::string expected;
  if (shape.layers < 1 || shape.layers > kMostLayers) {
    expected = "layers from 1 to " + std::to_string(kMostLayers);
  } else if (shape.buffers != 1 && shape.buffers != 2) {
    expected = "1 or 2 buffers";
  } else if (shape.page_bytes == 0 || shape.page_bytes % granularity != 0) {
    expected = "pages in multiples of " + std::to_string(granularity) + " bytes";
  } else if (shape.tensor_bytes == 0 || shape.tensor_bytes % unit(shape) != 0) {
    expected = "tensor bytes in multiples of " + std::to_string(unit(shape));
  } else if (shape.tensor_bytes > SIZE_MAX / 4 / static_cast<std::size_t>(shape.layers)) {
    expected = "tensors that an address space can hold";
  } else {
    return {};
  }
  return Status::error(Code::kInvalidArgument, "allocator.create_tensors", text_of(shape), 0,
                       "expected " + expected);
}

KvPlan::KvPlan(const KvShape& shape)
    : layout_(shape.layout),
      ranges_(layout_ == KvLayout::kContiguous ? 1 : shape.layers),
      pieces_in_range_(layout_ == KvLayout::kPerLayer ? shape.buffers : 1),
      buffers_(shape.buffers),
      page_bytes_(shape.page_bytes) {
  const auto layers = static_cast<std::size_t>(shape.layers);
  const auto buffers = static_cast<std::size_t>(shape.buffers);
  const bool compound = layout_ == KvLayout::kContiguous;
  piece_bytes_ = compound ? page_bytes_ * layers * buffers : page_bytes_;
  extent_ = layout_ == KvLayout::kUnified ? shape.tensor_bytes : shape.tensor_bytes / buffers;
  range_bytes_ = compound ? shape.tensor_bytes * layers : shape.tensor_bytes;
}

std::vector<KvPlan::Piece> KvPlan::pieces_of(std::size_t offset) const {
  std::vector<Piece> pieces;
  pieces.reserve(static_cast<std::size_t>(this->pieces()));
  for (int range = 0; range < ranges_; ++range) {
    for (int buffer = 0; buffer < pieces_in_range_; ++buffer) {
      pieces.push_back(locate(range, buffer, offset));
    }
  }
  return pieces;
}

KvPlan::Piece KvPlan::locate(int layer, int buffer, std::size_t offset) const {
  switch (layout_) {
    case KvLayout::kPerLayer:
      return {layer, buffer, static_cast<std::size_t>(buffer) * extent_ + offset};
    case KvLayout::kUnified:
      return {layer, 0, offset};
    case KvLayout::kContiguous:
      break;
  }
  const auto row = static_cast<std::size_t>(layer * buffers_ + buffer);
  return {0, 0, offset / page_bytes_ * piece_bytes_ + row * page_bytes_ + offset % page_bytes_};
}

Status BlockPlan::check() const {
  if (block_ > 0 && block_ <= page_) return {};
  return Status::error(Code::kInvalidArgument, "blocks", std::to_string(block_) + " bytes", 0,
                       "expected 1 to " + std::to_string(page_) + ", the bytes of a page");
}

std::int64_t BlockPlan::page_of(std::int64_t block) const {
  if (block < 0) return -1;
  const std::size_t begin = static_cast<std::size_t>(block) * block_;
  const std::size_t page = begin / page_;
  return begin + block_ <= (page + 1) * page_ ? static_cast<std::int64_t>(page) : -1;
}

std::int64_t BlockPlan::least() const {
  const auto whole = static_cast<std::int64_t>(page_ / block_);
  // Where blocks do not divide a page, some page loses one to each of its edges.
  return page_ % block_ == 0 ? whole : std::max<std::int64_t>(whole - 1, 0);
}

}  // namespace kv
