// What an allocator of pages stands on: somebody who maps and unmaps them. In a single process that
// is the allocator of this process; an engine core whose workers hold the memory puts a broadcast
// here (remote_pages.h).
//
// Threads: members are called from any thread, several at once, never twice for one page at a time.
// Ownership: as the implementation says.
#ifndef KVCORE_CACHE_PAGE_BACKEND_H_
#define KVCORE_CACHE_PAGE_BACKEND_H_

#include <cstdint>
#include <vector>

#include "kvcore/base/status.h"
#include "kvcore/memory/kv_allocator.h"

namespace kv {

class PageBackend {
 public:
  virtual ~PageBackend() = default;

  // How a batch ended. `states` says it for each of its pages when it failed; empty when it is
  // fine.
  struct Done {
    Status status;
    std::vector<PageMap> states;
  };
  // Pages are numbers from 0. A batch is whole or undone; what could not be undone is kQuarantined.
  virtual Done map(const std::vector<std::int64_t>& pages) = 0;
  // Waits for work in flight that uses them.
  virtual Done unmap(const std::vector<std::int64_t>& pages) = 0;
  // Whether both take something off for a moment that work may read at any time (KvShape's zero
  // page): then only whoever starts the work can say when, and no keeper may do it beside.
  virtual bool needs_idle() const { return false; }
};

// The pages of one group of this process's allocator, which is borrowed.
class LocalPages final : public PageBackend {
 public:
  LocalPages(KvAllocator& allocator, std::int64_t group, std::size_t page_bytes)
      : allocator_(allocator), group_(group), page_bytes_(static_cast<std::int64_t>(page_bytes)) {}

  Done map(const std::vector<std::int64_t>& pages) override;
  Done unmap(const std::vector<std::int64_t>& pages) override;
  bool needs_idle() const override { return allocator_.has_zero_page(group_); }

 private:
  std::vector<std::int64_t> offsets(const std::vector<std::int64_t>& pages) const;
  Done ended(const Status& status, const std::vector<std::int64_t>& offsets);

  KvAllocator& allocator_;
  const std::int64_t group_, page_bytes_;
};

}  // namespace kv

#endif  // KVCORE_CACHE_PAGE_BACKEND_H_
