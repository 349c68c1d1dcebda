// The zero page of a KvGroup: one zero-filled handle of a piece's size, mapped for reading wherever
// no page is.
#include <utility>

#include "kvcore/memory/kv_group.h"

namespace kv {

std::size_t KvGroup::piece_of(const Page& page) const {
  const auto range = static_cast<std::size_t>(page.layer);
  return range * pieces_of_range() + (page.address - ranges_[range].address) / plan_.piece_bytes();
}

Status KvGroup::make_zero_page() {
  constexpr const char* kOperation = "allocator.create_tensors";
  const std::size_t bytes = plan_.piece_bytes();
  has_zero_.assign(ranges_.size() * pieces_of_range(), false);
  const Result<MemHandle> handle = vmm_.create(bytes, /*exportable=*/false);
  if (!handle.ok()) return failure(kOperation, ranges_.front(), handle.status());
  zero_ = *handle;
  // New memory holds anything. It is filled where it is mapped first, before it becomes read-only.
  const DeviceAddress first = ranges_.front().address;
  Status status = vmm_.map(first, bytes, zero_);
  if (status.ok()) {
    has_zero_[0] = true;
    status = vmm_.set_access(first, bytes, Access::kReadWrite);
  }
  if (status.ok()) status = vmm_.fill(first, 0, bytes);
  if (!status.ok()) return failure(kOperation, ranges_.front(), status);
  std::size_t piece = 0;
  for (const Range& range : ranges_) {
    for (std::size_t at = 0; at < plan_.range_bytes(); at += bytes) {
      KV_RETURN_IF_ERROR(failure(kOperation, range, put_zero(range.address + at, piece++)));
    }
  }
  return {};
}

// Again where it is mapped already, without the rights.
Status KvGroup::put_zero(DeviceAddress address, std::size_t piece) {
  if (!has_zero_[piece]) {
    KV_RETURN_IF_ERROR(vmm_.map(address, plan_.piece_bytes(), zero_));
    has_zero_[piece] = true;
  }
  return vmm_.set_access(address, plan_.piece_bytes(), Access::kRead);
}

Status KvGroup::take_zero(DeviceAddress address, std::size_t piece) {
  if (!has_zero_[piece]) return {};
  KV_RETURN_IF_ERROR(vmm_.unmap(address, plan_.piece_bytes()));
  has_zero_[piece] = false;
  return {};
}

Status KvGroup::unmap_zero_page() {
  if (has_zero_.empty()) return {};
  Status first;
  for (const Range& range : ranges_) {
    const std::size_t begin = static_cast<std::size_t>(range.layer) * pieces_of_range();
    for (std::size_t i = 0; i < pieces_of_range(); ++i) {
      const DeviceAddress address = range.address + i * plan_.piece_bytes();
      Status status = failure("allocator.release", range, take_zero(address, begin + i));
      if (first.ok()) first = std::move(status);
    }
  }
  return first;
}

Status KvGroup::release_zero_page() {
  if (zero_ == MemHandle::kNone) return {};
  const Status status = vmm_.release(zero_);
  if (status.ok()) {
    zero_ = MemHandle::kNone;
    return {};
  }
  return Status::error(status.code(), "allocator.release", name() + ", the zero page",
                       status.native(), status.to_string());
}

}  // namespace kv
