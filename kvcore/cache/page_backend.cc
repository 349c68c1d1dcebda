#include "kvcore/cache/page_backend.h"

namespace kv {

std::vector<std::int64_t> LocalPages::offsets(const std::vector<std::int64_t>& pages) const {
  std::vector<std::int64_t> offsets;
  offsets.reserve(pages.size());
  for (const std::int64_t page : pages) offsets.push_back(page * page_bytes_);
  return offsets;
}

PageBackend::Done LocalPages::ended(const Status& status,
                                    const std::vector<std::int64_t>& offsets) {
  if (status.ok()) return {};
  auto states = allocator_.page_states(group_, offsets);
  // A group that says nothing any more is being taken down: nobody may be given its pages.
  if (!states.ok()) {
    return {status, std::vector<PageMap>(offsets.size(), PageMap::kQuarantined)};
  }
  return {status, std::move(*states)};
}

PageBackend::Done LocalPages::map(const std::vector<std::int64_t>& pages) {
  const std::vector<std::int64_t> at = offsets(pages);
  return ended(allocator_.map(group_, at).status(), at);
}

PageBackend::Done LocalPages::unmap(const std::vector<std::int64_t>& pages) {
  const std::vector<std::int64_t> at = offsets(pages);
  return ended(allocator_.unmap(group_, at), at);
}

}  // namespace kv
