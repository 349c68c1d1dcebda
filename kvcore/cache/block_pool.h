// The blocks of the pages that a cache has: which are free, and from which page the next come. A
// page is open while it has blocks here; a request's blocks are kept together by taking them from
// the fullest page that has room for all of them, else from the emptiest pages first.
//
// Threads: none of its own; its owner orders all calls.
// Ownership: values; knows pages by number only.
#ifndef KVCORE_CACHE_BLOCK_POOL_H_
#define KVCORE_CACHE_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcore/memory/kv_layout.h"

namespace kv {

class BlockPool {
 public:
  // `plan` was checked; pages are 0 to below `pages`.
  BlockPool(const BlockPlan& plan, std::int64_t pages);

  // All blocks of the page are free from here on. It was not open.
  void open(std::int64_t page);
  // Forgets a page whose blocks are all free.
  void close(std::int64_t page);
  bool is_open(std::int64_t page) const { return at(page).open; }
  bool is_empty(std::int64_t page) const { return at(page).free == at(page).count; }

  std::int64_t free_in(std::int64_t page) const { return at(page).free; }
  std::int64_t free_blocks() const { return free_; }
  // Takes `n` free blocks, at most free_blocks(), appending them to `out`, and calls them given.
  void take(std::int64_t n, std::vector<std::int64_t>* out);

  enum class Block : std::uint8_t { kNone, kFree, kHeld, kGiven };  // none: of no open page
  Block state(std::int64_t block) const;
  // Held: taken, and not the user's. Both only for blocks that are held or given.
  void set_given(std::int64_t block, bool given);
  // The same for a request's blocks: those given are held, in order, up to the first that is not
  // given. Returns how many.
  std::size_t hold(const std::vector<std::int64_t>& blocks);
  // A block that is held or given is free again. Returns its page.
  std::int64_t put(std::int64_t block);
  // The same for many, none twice. Appends the pages that this emptied to `emptied`.
  void put(const std::vector<std::int64_t>& blocks, std::vector<std::int64_t>* emptied);

 private:
  static constexpr std::int64_t kNowhere = -1;
  struct Page {
    std::int64_t first = 0;
    std::int32_t count = 0, free = 0;
    bool open = false;
    // Neighbours in the list of open pages with equally many free blocks; full ones are in none.
    std::int64_t previous = kNowhere, next = kNowhere;
  };

  Page& at(std::int64_t page) { return pages_[static_cast<std::size_t>(page)]; }
  const Page& at(std::int64_t page) const { return pages_[static_cast<std::size_t>(page)]; }
  std::uint64_t* free_bits(std::int64_t page) {
    return &free_bits_[static_cast<std::size_t>(page) * words_];
  }
  // Cheaper than finding the page of each: a request's blocks lie in few pages, next to each other.
  bool is_in(std::int64_t page, std::int64_t block) const {
    return static_cast<std::uint64_t>(block - at(page).first) <
           static_cast<std::uint64_t>(at(page).count);
  }
  std::size_t bit_of(std::int64_t page, std::int64_t block) const {
    return static_cast<std::size_t>(page) * words_ * 64 +
           static_cast<std::size_t>(block - at(page).first);
  }
  void link(std::int64_t page);
  void unlink(std::int64_t page);
  void refile(std::int64_t page, std::int32_t free);
  // The page to take from when `n` are wanted: best fit, or the emptiest.
  std::int64_t choose(std::int64_t n) const;
  std::int64_t take_from(std::int64_t page, std::int64_t n, std::vector<std::int64_t>* out);

  const BlockPlan plan_;
  const std::size_t words_;  // of bits, a page
  std::vector<Page> pages_;
  std::vector<std::uint64_t> free_bits_, given_bits_;
  std::vector<std::int64_t> heads_;  // of the lists, by free blocks
  std::vector<std::uint64_t> some_;  // bit n: heads_[n] is a page
  std::int64_t free_ = 0;
};

}  // namespace kv

#endif  // KVCORE_CACHE_BLOCK_POOL_H_
