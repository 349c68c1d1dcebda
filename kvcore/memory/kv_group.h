// The tensors of one group: its address ranges, the pages mapped into them, and what batches do to
// both. KvAllocator is the public face; it owns the groups and the mutex that orders their calls.
//
// How a batch stays a transaction: a page is one handle, mapped at one address, and the handle is
// kept for as long as the page is there. Mapping creates all handles first (what usually fails,
// for want of memory, fails before any address has changed), then maps. Unmapping takes all pages
// off first and gives handles back only when that has succeeded, so up to then every call can be
// taken back, and a page that is mapped again holds the bytes it held.
//
// With the zero page every piece without a page has the group's one zero-filled handle mapped, for
// reading. An address then goes from the one to the other, and back when the batch fails. A piece
// that ends with neither is quarantined.
//
// Threads: no member may run beside another of the same group.
// Ownership: owns ranges, handles and mappings; release() gives them back, the destructor does not.
#ifndef KVCORE_MEMORY_KV_GROUP_H_
#define KVCORE_MEMORY_KV_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcore/base/log.h"
#include "kvcore/base/status.h"
#include "kvcore/driver/vmm.h"
#include "kvcore/memory/kv_allocator.h"
#include "kvcore/memory/kv_layout.h"

namespace kv {

class KvGroup {
 public:
  // `vmm` and `log` must outlive the group; the shape is a valid one.
  KvGroup(Vmm& vmm, const LogSink& log, std::int64_t id, const KvShape& shape);

  // Reserves the ranges of all layers. On failure those that were reserved are given back; where
  // that fails too (kQuarantined) gone() is false, and release() has what is left.
  Status reserve();
  // What the members of KvAllocator of the same names say, for this group.
  Result<std::vector<std::int64_t>> map(const std::vector<std::int64_t>& offsets);
  // unmap and commit, and map where there is a zero page, do not wait for work in flight: whoever
  // calls has done that since the pages were last used, and asks first whether there is anything to
  // wait for.
  Result<bool> takes_zero_pages(const std::vector<std::int64_t>& offsets) const;
  Result<bool> takes_pages(const std::vector<std::int64_t>& offsets) const;
  Result<bool> takes_pages(std::string_view transaction) const;
  Status unmap(const std::vector<std::int64_t>& offsets);
  Status prepare_unmap(const std::vector<std::int64_t>& offsets, std::string_view transaction);
  Status commit_unmap(std::string_view transaction);
  Status abort_unmap(std::string_view transaction);
  Result<std::vector<PageMap>> page_states(const std::vector<std::int64_t>& offsets) const;
  Result<DeviceAddress> tensor(int layer) const;
  Result<DeviceAddress> address(int layer, int buffer, std::int64_t offset) const;
  // Gives everything back, in the order unmap, release, free address. What fails is tried again by
  // the next call; from the first call on the other members refuse. Returns the first failure.
  Status release();

  const KvShape& shape() const { return shape_; }
  bool usable() const { return usable_; }  // reserved, and no release() has begun
  // The driver holds nothing of it.
  bool gone() const { return ranges_.empty() && slots_.empty() && zero_ == MemHandle::kNone; }
  // Work in flight may use some.
  bool has_pages() const { return !slots_.empty() || zero_ != MemHandle::kNone; }
  void add_to(KvCounts* counts) const;

 private:
  struct Range {
    int layer = 0;  // the first one in it
    DeviceAddress address = 0;
    bool refused = false;  // as Page's; the next try to free it takes off all that is there
  };
  // One mapping of one offset; its size is the plan's piece.
  struct Page {
    std::int64_t offset = 0;
    int layer = 0;
    int buffer = 0;
    DeviceAddress address = 0;
    MemHandle handle = MemHandle::kNone;
    bool mapped = false;
    bool bare = false;  // with a zero page only: neither it nor the page can be read there
    // The driver has something there that the books have not; release() takes it off.
    bool refused = false;
  };
  // All pages of one offset. Mapped whole, unless it is quarantined: then it has the pages that
  // could not be given back, or whose address was refused. An offset without a slot is free.
  struct Slot {
    bool quarantined = false;
    bool prepared = false;  // it belongs to the pending transaction
    std::vector<Page> pages;
  };
  using Offsets = std::vector<std::int64_t>;
  using Slots = std::map<std::int64_t, Slot>;
  struct Transaction {
    std::string id;
    Offsets offsets;  // sorted
    bool committed = false;
  };

  static std::string list(const Offsets& offsets);
  static Offsets sorted(Offsets offsets);
  Status check(const char* operation, const Offsets& offsets) const;
  // Every offset is mapped, and belongs to the pending transaction exactly if `prepared`.
  Status check_mapped(const char* operation, const Offsets& offsets, bool prepared) const;
  Slot new_slot(std::int64_t offset) const;
  std::vector<Page*> pages_of(const Offsets& offsets);
  static std::vector<Page*> pages_of(Slots* slots);

  // One page each. On failure the page says how far it got; map and unmap go on from there. Where
  // there is a zero page, map takes it off first, and unmap puts it back.
  Status create(Page* page);
  Status map(Page* page);
  Status unmap(Page* page);
  Status release(Page* page);

  void undo_map(const std::vector<Page*>& pages);
  // Maps again what is off. Offsets for which that failed are quarantined.
  void undo_unmap(const std::vector<Page*>& pages);
  // The body of unmap and commit, for offsets that were checked. `off`: the pages are off for good
  // (their memory may be quarantined); otherwise they are mapped, or quarantined.
  Status take_off(const char* operation, const Offsets& offsets, bool* off);
  // Forgets pages without memory, unless they are bare or refused, and slots without pages; those
  // left are quarantined.
  static void keep_what_is_held(Slots* slots);

  std::string name() const;
  std::string name(std::int64_t offset) const;
  std::string name(const Range& range) const;
  std::string name(const Page& page) const;
  // `cause` as the failure of `operation`, on a part of the group; words only when it failed.
  Status failure(const char* operation, const Range& range, const Status& cause) const;
  Status failure(const char* operation, const Page& page, const Status& cause) const;
  // `cause`, or where some of `offsets` are quarantined now, the Status that says so (logged too).
  Status set_aside(const char* operation, const Offsets& offsets, const Status& cause);
  void note_undo_failure(const Status& status) const;

  Status check_transaction(const char* operation, std::string_view transaction) const;
  const Transaction* find_ended(std::string_view transaction) const;
  void end_pending(bool committed);
  Status free_ranges();
  Status free_range(Range* range);
  // Gives back what reserve() got so far; `cause`, or kQuarantined when something of it is left.
  Status give_up(const Status& cause);

  // The zero page: of the whole group, and of one piece.
  Status make_zero_page();
  Status unmap_zero_page();
  Status release_zero_page();
  Status put_zero(DeviceAddress address, std::size_t piece);
  Status take_zero(DeviceAddress address, std::size_t piece);
  std::size_t pieces_of_range() const { return plan_.range_bytes() / plan_.piece_bytes(); }
  std::size_t piece_of(const Page& page) const;

  Vmm& vmm_;
  const LogSink& log_;
  const std::int64_t id_;
  const KvShape shape_;
  const KvPlan plan_;
  bool usable_ = false;
  std::vector<Range> ranges_;  // usable: all of the plan, in order; else those that are left
  Slots slots_;
  std::optional<Transaction> pending_;
  std::deque<Transaction> ended_;  // the last ones, oldest first
  MemHandle zero_ = MemHandle::kNone;
  std::vector<bool> has_zero_;  // pieces, range by range: it is mapped there
};

}  // namespace kv

#endif  // KVCORE_MEMORY_KV_GROUP_H_
