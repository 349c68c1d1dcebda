#include "kvcore/memory/kv_group.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "kvcore/hook.h"

namespace kv {

KvGroup::KvGroup(Vmm& vmm, const LogSink& log, std::int64_t id, const KvShape& shape)
    : vmm_(vmm), log_(log), id_(id), shape_(shape), plan_(shape) {}

std::string KvGroup::list(const Offsets& offsets) {
  std::string text;
  for (const std::int64_t offset : offsets) {
    if (!text.empty()) text += ", ";
    text += std::to_string(offset);
  }
  return text;
}

KvGroup::Offsets KvGroup::sorted(Offsets offsets) {
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// ---- ranges

Status KvGroup::reserve() {
  constexpr const char* kOperation = "allocator.create_tensors";
  ranges_.reserve(static_cast<std::size_t>(plan_.ranges()));
  for (int layer = 0; layer < plan_.ranges(); ++layer) {
    const Result<DeviceAddress> address = vmm_.reserve(plan_.range_bytes());
    if (!address.ok()) {
      return give_up(failure(kOperation, Range{layer}, address.status()));
    }
    ranges_.push_back({layer, *address});
  }
  if (shape_.zero_page) {
    if (const Status status = make_zero_page(); !status.ok()) return give_up(status);
  }
  usable_ = true;
  return {};
}

Status KvGroup::give_up(const Status& cause) {
  const Status undo = release();
  if (undo.ok()) return cause;
  note_undo_failure(undo);
  return Status::error(Code::kQuarantined, "allocator.create_tensors", name(), cause.native(),
                       "something is left for release_all: " + cause.to_string());
}

Status KvGroup::free_ranges() {
  std::set<int> occupied;  // ranges in which something is still mapped
  for (const auto& [offset, slot] : slots_) {
    for (const Page& page : slot.pages) {
      if (page.mapped || page.refused) occupied.insert(page.layer);
    }
  }
  for (std::size_t piece = 0; piece < has_zero_.size(); ++piece) {
    if (has_zero_[piece]) occupied.insert(static_cast<int>(piece / pieces_of_range()));
  }
  Status first;
  std::vector<Range> left;
  left.reserve(ranges_.size());
  for (Range range : ranges_) {
    Status status;
    if (!occupied.contains(range.layer)) {
      status = failure("allocator.release", range, free_range(&range));
      if (status.ok()) continue;
    }
    left.push_back(range);
    if (first.ok()) first = status;
  }
  ranges_ = std::move(left);
  return first;
}

Status KvGroup::free_range(Range* range) {
  if (range->refused) KV_RETURN_IF_ERROR(vmm_.unmap(range->address, plan_.range_bytes()));
  Status status = vmm_.free_address(range->address, plan_.range_bytes());
  range->refused = Vmm::refuses_address(status);
  return status;
}

Result<DeviceAddress> KvGroup::tensor(int layer) const {
  return address(layer, 0, 0);
}

Result<DeviceAddress> KvGroup::address(int layer, int buffer, std::int64_t offset) const {
  constexpr const char* kOperation = "allocator.address";
  const std::string object = name() + ", layer " + std::to_string(layer) + ", buffer " +
                             std::to_string(buffer) + ", byte " + std::to_string(offset);
  std::string expected;
  if (layer < 0 || layer >= shape_.layers) {
    expected = "layers are 0 to " + std::to_string(shape_.layers - 1);
  } else if (buffer < 0 || buffer >= shape_.buffers) {
    expected = "buffers are 0 to " + std::to_string(shape_.buffers - 1);
  } else if (offset < 0 || static_cast<std::size_t>(offset) >= plan_.extent()) {
    expected = "bytes are 0 to " + std::to_string(plan_.extent() - 1);
  }
  if (!expected.empty()) {
    return Status::error(Code::kInvalidArgument, kOperation, object, 0, expected);
  }
  if (!usable_) {
    return Status::error(Code::kFailedPrecondition, kOperation, object, 0,
                         "the group is being released");
  }
  const KvPlan::Piece at = plan_.locate(layer, buffer, static_cast<std::size_t>(offset));
  return ranges_[static_cast<std::size_t>(at.range)].address + at.at;
}

// ---- one page

Status KvGroup::create(Page* page) {
  Result<MemHandle> handle = vmm_.create(plan_.piece_bytes(), /*exportable=*/false);
  if (!handle.ok()) return handle.status();
  page->handle = *handle;
  return {};
}

Status KvGroup::map(Page* page) {
  if (shape_.zero_page) {
    KV_RETURN_IF_ERROR(take_zero(page->address, piece_of(*page)));
    page->bare = true;
  }
  // Only where creating it first was left out.
  if (page->handle == MemHandle::kNone) KV_RETURN_IF_ERROR(create(page));
  const Status status = vmm_.map(page->address, plan_.piece_bytes(), page->handle);
  if (Vmm::refuses_address(status) && step<"allocator.map.set_aside">(id_)) {
    // Given out again, it would be refused for ever, and whoever asks for the lowest one with it.
    page->refused = true;
    step_done<"allocator.map.set_aside">(id_);
  }
  KV_RETURN_IF_ERROR(status);
  page->mapped = true;
  page->bare = false;
  return vmm_.set_access(page->address, plan_.piece_bytes(), Access::kReadWrite);
}

Status KvGroup::unmap(Page* page) {
  if (page->mapped || page->refused) {
    KV_RETURN_IF_ERROR(vmm_.unmap(page->address, plan_.piece_bytes()));
    page->mapped = page->refused = false;
  }
  if (!shape_.zero_page || !usable_) return {};
  page->bare = false;
  if (!step<"allocator.zero_back">(id_)) return {};
  const Status status = put_zero(page->address, piece_of(*page));
  page->bare = !status.ok();
  step_done<"allocator.zero_back">(id_);
  return status;
}

Status KvGroup::release(Page* page) {
  KV_RETURN_IF_ERROR(vmm_.release(page->handle));
  page->handle = MemHandle::kNone;
  return {};
}

// ---- checks and words

Status KvGroup::check(const char* operation, const Offsets& offsets) const {
  if (!usable_) {
    return Status::error(Code::kFailedPrecondition, operation, name(), 0,
                         "the group is being released");
  }
  for (const std::int64_t offset : offsets) {
    const bool inside = offset >= 0 && static_cast<std::size_t>(offset) < plan_.extent();
    if (!inside || static_cast<std::size_t>(offset) % shape_.page_bytes != 0) {
      return Status::error(Code::kInvalidArgument, operation, name(offset), 0,
                           "expected a multiple of " + std::to_string(shape_.page_bytes) +
                               " from 0 to below " + std::to_string(plan_.extent()));
    }
  }
  const Offsets in_order = sorted(offsets);
  if (const auto twice = std::adjacent_find(in_order.begin(), in_order.end());
      twice != in_order.end()) {
    return Status::error(Code::kInvalidArgument, operation, name(*twice), 0,
                         "it is there twice in one batch");
  }
  return {};
}

Status KvGroup::check_mapped(const char* operation, const Offsets& offsets, bool prepared) const {
  for (const std::int64_t offset : offsets) {
    const auto slot = slots_.find(offset);
    if (slot == slots_.end()) {
      return Status::error(Code::kFailedPrecondition, operation, name(offset), 0, "not mapped");
    }
    if (slot->second.quarantined) {
      return Status::error(Code::kQuarantined, operation, name(offset), 0,
                           "set aside after an earlier failure");
    }
    if (slot->second.prepared && !prepared) {
      return Status::error(Code::kFailedPrecondition, operation, name(offset), 0,
                           "reserved by transaction " + pending_->id);
    }
  }
  return {};
}

std::string KvGroup::name() const {
  return "group " + std::to_string(id_);
}
std::string KvGroup::name(std::int64_t offset) const {
  return name() + ", offset " + std::to_string(offset);
}
std::string KvGroup::name(const Range& range) const {
  return name() + ", layer " + std::to_string(range.layer);
}
std::string KvGroup::name(const Page& page) const {
  return name(page.offset) + ", layer " + std::to_string(page.layer) + ", buffer " +
         std::to_string(page.buffer);
}

Status KvGroup::failure(const char* operation, const Range& range, const Status& cause) const {
  if (cause.ok()) return {};
  return Status::error(cause.code(), operation, name(range), cause.native(), cause.to_string());
}
Status KvGroup::failure(const char* operation, const Page& page, const Status& cause) const {
  if (cause.ok()) return {};
  return Status::error(cause.code(), operation, name(page), cause.native(), cause.to_string());
}

Status KvGroup::set_aside(const char* operation, const Offsets& offsets, const Status& cause) {
  Offsets left;
  std::copy_if(offsets.begin(), offsets.end(), std::back_inserter(left), [this](auto offset) {
    const auto slot = slots_.find(offset);
    return slot != slots_.end() && slot->second.quarantined;
  });
  if (left.empty()) return cause;
  Status status = Status::error(
      Code::kQuarantined, operation, name() + ", offsets " + list(left), cause.native(),
      "refused, or could not be undone or given back; never handed out again: " +
          cause.to_string());
  if (log_) log_(Severity::kError, status.to_string());
  return status;
}

void KvGroup::note_undo_failure(const Status& status) const {
  if (log_) log_(Severity::kError, "undo failed: " + status.to_string());
}

// ---- batches

KvGroup::Slot KvGroup::new_slot(std::int64_t offset) const {
  Slot slot;
  slot.pages.reserve(static_cast<std::size_t>(plan_.pieces()));
  for (const KvPlan::Piece& piece : plan_.pieces_of(static_cast<std::size_t>(offset))) {
    Page page;
    page.offset = offset;
    page.layer = piece.range;
    page.buffer = piece.buffer;
    page.address = ranges_[static_cast<std::size_t>(piece.range)].address + piece.at;
    slot.pages.push_back(page);
  }
  return slot;
}

std::vector<KvGroup::Page*> KvGroup::pages_of(const Offsets& offsets) {
  std::vector<Page*> pages;
  for (const std::int64_t offset : offsets) {
    for (Page& page : slots_.at(offset).pages) pages.push_back(&page);
  }
  return pages;
}

std::vector<KvGroup::Page*> KvGroup::pages_of(Slots* slots) {
  std::vector<Page*> pages;
  for (auto& [offset, slot] : *slots) {
    for (Page& page : slot.pages) pages.push_back(&page);
  }
  return pages;
}

void KvGroup::keep_what_is_held(Slots* slots) {
  for (auto entry = slots->begin(); entry != slots->end();) {
    Slot& slot = entry->second;
    std::erase_if(slot.pages, [](const Page& page) {
      return page.handle == MemHandle::kNone && !page.bare && !page.refused;
    });
    slot.quarantined = true;
    entry = slot.pages.empty() ? slots->erase(entry) : std::next(entry);
  }
}

Result<std::vector<std::int64_t>> KvGroup::map(const Offsets& offsets) {
  constexpr const char* kOperation = "allocator.map";
  KV_RETURN_IF_ERROR(check(kOperation, offsets));
  Offsets fresh;
  Slots batch;
  for (const std::int64_t offset : offsets) {
    if (slots_.contains(offset)) {
      KV_RETURN_IF_ERROR(check_mapped(kOperation, {offset}, /*prepared=*/false));
    } else {
      fresh.push_back(offset);
      batch.emplace(offset, new_slot(offset));
    }
  }
  const std::vector<Page*> pages = pages_of(&batch);
  Status status;
  // First what usually fails: until all the memory is there, no address changes.
  if (step<"allocator.map.create_first">(id_)) {
    for (auto page = pages.begin(); page != pages.end() && status.ok(); ++page) {
      status = failure(kOperation, **page, create(*page));
    }
    step_done<"allocator.map.create_first">(id_);
  }
  for (auto page = pages.begin(); page != pages.end() && status.ok(); ++page) {
    status = failure(kOperation, **page, map(*page));
  }
  if (status.ok()) {
    slots_.merge(batch);
    return fresh;
  }
  if (step<"allocator.map.undo">(id_)) {
    undo_map(pages);
    step_done<"allocator.map.undo">(id_);
  } else {
    batch.clear();  // the defect: what a failed batch did is forgotten where it is
  }
  keep_what_is_held(&batch);
  slots_.merge(batch);
  return set_aside(kOperation, fresh, status);
}

void KvGroup::undo_map(const std::vector<Page*>& pages) {
  const auto undo = [this](Page* page, const Status& status) {
    if (!status.ok()) note_undo_failure(failure("allocator.map.undo", *page, status));
  };
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    if ((*page)->refused) continue;  // what is there is not this batch's
    if ((*page)->mapped || (*page)->bare) undo(*page, unmap(*page));
  }
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    if (!(*page)->mapped && (*page)->handle != MemHandle::kNone) undo(*page, release(*page));
  }
}

Status KvGroup::take_off(const char* operation, const Offsets& offsets, bool* off) {
  *off = false;
  const std::vector<Page*> pages = pages_of(offsets);
  if (pages.empty()) {
    *off = true;
    return {};
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const Status status = failure(operation, *pages[i], unmap(pages[i]));
    if (status.ok()) continue;
    if (step<"allocator.unmap.undo">(id_)) {
      undo_unmap({pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(i) + 1});
      step_done<"allocator.unmap.undo">(id_);
    }
    return set_aside(operation, offsets, status);
  }
  *off = true;
  Status first;
  for (Page* page : pages) {
    const Status status = failure(operation, *page, release(page));
    if (first.ok()) first = status;
  }
  Slots taken;
  for (const std::int64_t offset : offsets) taken.insert(slots_.extract(offset));
  keep_what_is_held(&taken);
  slots_.merge(taken);
  return set_aside(operation, offsets, first);
}

void KvGroup::undo_unmap(const std::vector<Page*>& pages) {
  for (auto entry = pages.rbegin(); entry != pages.rend(); ++entry) {
    Page* page = *entry;
    if (page->mapped) continue;
    const Status status = failure("allocator.unmap.undo", *page, map(page));
    if (status.ok()) continue;
    note_undo_failure(status);
    slots_.at(page->offset).quarantined = true;
  }
}

Result<bool> KvGroup::takes_zero_pages(const Offsets& offsets) const {
  KV_RETURN_IF_ERROR(check("allocator.map", offsets));
  return shape_.zero_page && std::any_of(offsets.begin(), offsets.end(),
                                         [this](auto offset) { return !slots_.contains(offset); });
}

Result<bool> KvGroup::takes_pages(const Offsets& offsets) const {
  constexpr const char* kOperation = "allocator.unmap";
  KV_RETURN_IF_ERROR(check(kOperation, offsets));
  KV_RETURN_IF_ERROR(check_mapped(kOperation, offsets, /*prepared=*/false));
  return !offsets.empty();
}

Status KvGroup::unmap(const Offsets& offsets) {
  constexpr const char* kOperation = "allocator.unmap";
  KV_RETURN_IF_ERROR(check(kOperation, offsets));
  KV_RETURN_IF_ERROR(check_mapped(kOperation, offsets, /*prepared=*/false));
  bool off = false;
  return take_off(kOperation, offsets, &off);
}

Result<std::vector<PageMap>> KvGroup::page_states(const Offsets& offsets) const {
  KV_RETURN_IF_ERROR(check("allocator.page_states", offsets));
  std::vector<PageMap> states;
  states.reserve(offsets.size());
  for (const std::int64_t offset : offsets) {
    const auto slot = slots_.find(offset);
    states.push_back(slot == slots_.end()       ? PageMap::kUnmapped
                     : slot->second.quarantined ? PageMap::kQuarantined
                                                : PageMap::kMapped);
  }
  return states;
}

// ---- the end

Status KvGroup::release() {
  constexpr const char* kOperation = "allocator.release";
  usable_ = false;
  pending_.reset();
  Status first;
  const std::vector<Page*> pages = pages_of(&slots_);
  for (Page* page : pages) {
    if (!page->mapped && !page->refused) continue;
    const Status status = failure(kOperation, *page, unmap(page));
    if (first.ok()) first = status;
  }
  if (const Status status = unmap_zero_page(); first.ok()) first = status;
  for (Page* page : pages) {
    page->bare = false;
    if (page->mapped || page->handle == MemHandle::kNone) continue;
    const Status status = failure(kOperation, *page, release(page));
    if (first.ok()) first = status;
  }
  keep_what_is_held(&slots_);
  if (const Status status = release_zero_page(); first.ok()) first = status;
  const Status status = free_ranges();
  return first.ok() ? status : first;
}

void KvGroup::add_to(KvCounts* counts) const {
  counts->reserved_bytes += ranges_.size() * plan_.range_bytes();
  for (const auto& [offset, slot] : slots_) {
    (slot.quarantined ? counts->quarantined_pages : counts->mapped_pages) += slot.pages.size();
    counts->degraded = counts->degraded || slot.quarantined;
  }
  counts->pending_unmaps += pending_ ? 1 : 0;
  counts->degraded = counts->degraded || (!usable_ && !gone());
}

}  // namespace kv
