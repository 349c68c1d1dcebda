// Attention caches with pages that come and go: one reserved address range per tensor, pages mapped
// into all of them at the same offsets. How tensors, pages and offsets lie is the layout's
// (kv_layout.h); a group has its own shape and its own page space.
//
// A batch is a transaction: it is done whole, or what it did is undone. What cannot be undone is
// quarantined: never handed out again, reported, counted. So is an offset at whose address the
// driver refuses a page because something is mapped there: an unmap was said to be done and was
// not.
//
// Threads: all members may be called from any thread; a mutex orders them, and it is held over the
// driver calls (the deployed engines do the same), so a parked driver call parks the others.
// Ownership: owns ranges, handles and mappings; release_all() gives them back in the order unmap,
// release, free address. The destructor does not touch the driver: whoever drops it undestroyed
// leaves its memory to the process's end, on purpose (see runtime.h).
#ifndef KVCORE_MEMORY_KV_ALLOCATOR_H_
#define KVCORE_MEMORY_KV_ALLOCATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/status.h"
#include "kvcore/driver/vmm.h"
#include "kvcore/memory/kv_layout.h"

namespace kv {

// One consistent look at an allocator. Pages are mappings: how many an offset has is the layout's.
struct KvCounts {
  std::uint64_t reserved_bytes = 0;  // of address space
  std::uint64_t mapped_pages = 0;
  // Mapped or held, left without page and zero page, or at an address where the driver has
  // something that the books do not; never given out again.
  std::uint64_t quarantined_pages = 0;
  std::uint64_t pending_unmaps = 0;  // prepared transactions
  bool degraded = false;             // something is quarantined
};

enum class PageMap : std::uint8_t { kUnmapped, kMapped, kQuarantined };

class KvAllocator {
 public:
  virtual ~KvAllocator() = default;

  // Reserves the address ranges of a group. kInvalidArgument: the shape, with what was expected;
  // kAlreadyExists: the group has tensors. On failure nothing of it is left; kQuarantined when that
  // failed in part: release_all() has the rest.
  virtual Status create_tensors(std::int64_t group, const KvShape& shape) = 0;
  virtual bool tensors_created(std::int64_t group) = 0;
  // Of the group's shape; false where there is no such group.
  virtual bool has_zero_page(std::int64_t group) = 0;

  // Maps the pages at these offsets (bytes within a buffer, multiples of page_bytes, none twice) in
  // all layers and buffers. Returns the offsets that were not mapped before. Idempotent per page.
  // kFailedPrecondition, nothing done: an offset belongs to a prepared unmap.
  // Failure: what this batch mapped is undone; kQuarantined when that failed in part, or the driver
  // refused an address as not empty: that offset is set aside, the others of the batch are free.
  // Where there is a zero page, map waits for work in flight, which may read it, and unmap leaves
  // it; an address is without either for a moment, so no work on the group is started until they
  // return. The driver's code when that work failed, nothing done.
  virtual Result<std::vector<std::int64_t>> map(std::int64_t group,
                                                const std::vector<std::int64_t>& offsets) = 0;
  // Unmaps and gives the memory back, after all work on the device has ended (work that uses a page
  // while it goes dies, and the context with it). Nothing done: kFailedPrecondition when an offset
  // is not mapped or belongs to a prepared unmap; the driver's code when that work failed.
  // A batch that fails in the middle is mapped again whole, with its bytes. kQuarantined: offsets
  // for which that failed; or all are unmapped, but memory of these could not be given back.
  virtual Status unmap(std::int64_t group, const std::vector<std::int64_t>& offsets) = 0;

  // The two halves of an unmap. prepare: checks and reserves the offsets under `transaction`;
  // commit: unmaps; abort: lets them be. All are idempotent for a transaction that ended that way
  // already, and kFailedPrecondition for one that ended the other way; one is pending per group.
  // The last 256 that ended are known; any other one is kNotFound to commit and abort.
  // prepare again, with the same offsets: fine while it is pending and after its commit.
  // A commit that fails with pages still mapped leaves it pending: commit again, or abort.
  virtual Status prepare_unmap(std::int64_t group, const std::vector<std::int64_t>& offsets,
                               std::string_view transaction) = 0;
  virtual Status commit_unmap(std::int64_t group, std::string_view transaction) = 0;
  virtual Status abort_unmap(std::int64_t group, std::string_view transaction) = 0;

  // What these offsets are now. For whoever keeps books of pages: after a batch that failed, this
  // says how each of its offsets ended. kNotFound, kInvalidArgument as for a batch.
  virtual Result<std::vector<PageMap>> page_states(std::int64_t group,
                                                   const std::vector<std::int64_t>& offsets) = 0;
  // The base address of a layer's tensor.
  virtual Result<DeviceAddress> tensor(std::int64_t group, int layer) = 0;
  // Where a byte of a buffer lies: `offset` counts within the buffer, in the unified layout within
  // the layer (K and V side by side). Whether a page is mapped there is not looked at.
  virtual Result<DeviceAddress> address(std::int64_t group, int layer, int buffer,
                                        std::int64_t offset) = 0;
  virtual KvCounts counts() = 0;

  // Gives everything back once work has ended: unmap, release, free address, group by group. A
  // failure is returned (the first), the rest is still tried, and what is left can be tried again
  // by another call; until then its group takes no more batches. Prepared unmaps are dropped.
  virtual Status release_all() = 0;
  // The same, if nobody is inside another call any more by then: otherwise kDeadline, nothing done.
  virtual Status release_all(Clock& clock, Time until) = 0;
};

// `vmm` is kept by reference and must outlive the allocator.
std::unique_ptr<KvAllocator> make_kv_allocator(Vmm& vmm, LogSink log);

}  // namespace kv

#endif  // KVCORE_MEMORY_KV_ALLOCATOR_H_
