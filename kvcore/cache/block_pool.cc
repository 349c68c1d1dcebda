#include "kvcore/cache/block_pool.h"

#include <algorithm>
#include <bit>

namespace kv {
namespace {

std::int64_t most(const BlockPlan& plan, std::int64_t pages) {
  std::int64_t most = 0;
  for (std::int64_t page = 0; page < std::min<std::int64_t>(pages, 2); ++page) {
    most = std::max(most, plan.count(page));
  }
  return std::max<std::int64_t>(most, plan.least()) + 1;  // later pages have at most one more
}

bool test(const std::vector<std::uint64_t>& bits, std::size_t bit) {
  return (bits[bit / 64] >> (bit % 64) & 1) != 0;
}
void set(std::vector<std::uint64_t>* bits, std::size_t bit) {
  (*bits)[bit / 64] |= std::uint64_t{1} << (bit % 64);
}
void clear(std::vector<std::uint64_t>* bits, std::size_t bit) {
  (*bits)[bit / 64] &= ~(std::uint64_t{1} << (bit % 64));
}

}  // namespace

BlockPool::BlockPool(const BlockPlan& plan, std::int64_t pages)
    : plan_(plan),
      words_(static_cast<std::size_t>((most(plan, pages) + 63) / 64)),
      pages_(static_cast<std::size_t>(pages)),
      free_bits_(static_cast<std::size_t>(pages) * words_),
      given_bits_(free_bits_.size()),
      heads_(words_ * 64, kNowhere),
      some_(words_) {
  for (std::int64_t page = 0; page < pages; ++page) {
    at(page).first = plan_.first(page);
    at(page).count = static_cast<std::int32_t>(plan_.count(page));
  }
}

// ---- the lists

void BlockPool::link(std::int64_t page) {
  Page& entry = at(page);
  if (entry.free == 0) return;
  const auto list = static_cast<std::size_t>(entry.free);
  entry.previous = kNowhere;
  entry.next = heads_[list];
  if (entry.next != kNowhere) at(entry.next).previous = page;
  heads_[list] = page;
  set(&some_, list);
}

void BlockPool::unlink(std::int64_t page) {
  const Page& entry = at(page);
  if (entry.free == 0) return;
  const auto list = static_cast<std::size_t>(entry.free);
  if (entry.previous != kNowhere) at(entry.previous).next = entry.next;
  if (entry.next != kNowhere) at(entry.next).previous = entry.previous;
  if (heads_[list] == page) heads_[list] = entry.next;
  if (heads_[list] == kNowhere) clear(&some_, list);
}

void BlockPool::refile(std::int64_t page, std::int32_t free) {
  unlink(page);
  free_ += free - at(page).free;
  at(page).free = free;
  link(page);
}

std::int64_t BlockPool::choose(std::int64_t n) const {
  const auto from =
      static_cast<std::size_t>(std::min<std::int64_t>(n, static_cast<std::int64_t>(heads_.size())));
  for (std::size_t word = from / 64; word < words_; ++word) {
    std::uint64_t bits = some_[word];
    if (word == from / 64) bits &= ~std::uint64_t{0} << (from % 64);
    if (bits != 0) return heads_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
  }
  for (std::size_t word = words_; word > 0; --word) {
    const std::uint64_t bits = some_[word - 1];
    if (bits != 0) {
      return heads_[word * 64 - 1 - static_cast<std::size_t>(std::countl_zero(bits))];
    }
  }
  return kNowhere;
}

// ---- pages

void BlockPool::open(std::int64_t page) {
  Page& entry = at(page);
  entry.open = true;
  std::uint64_t* words = free_bits(page);
  for (std::int32_t bit = 0; bit < entry.count; bit += 64) {
    const std::int32_t here = std::min(entry.count - bit, 64);
    words[bit / 64] = here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1;
  }
  refile(page, entry.count);
}

void BlockPool::close(std::int64_t page) {
  refile(page, 0);
  at(page).open = false;
}

// ---- blocks

void BlockPool::take(std::int64_t n, std::vector<std::int64_t>* out) {
  while (n > 0) n -= take_from(choose(n), n, out);
}

std::int64_t BlockPool::take_from(std::int64_t page, std::int64_t n,
                                  std::vector<std::int64_t>* out) {
  const Page& entry = at(page);
  const std::int64_t taken = std::min<std::int64_t>(n, entry.free);
  std::uint64_t* words = free_bits(page);
  const std::size_t given = static_cast<std::size_t>(page) * words_;
  std::int64_t left = taken;
  for (std::size_t word = 0; left > 0; ++word) {
    std::uint64_t bits = words[word], took = 0;
    for (; bits != 0 && left > 0; --left) {
      const std::uint64_t lowest = bits & (~bits + 1);
      out->push_back(entry.first + static_cast<std::int64_t>(word) * 64 + std::countr_zero(bits));
      took |= lowest;
      bits ^= lowest;
    }
    words[word] = bits;
    given_bits_[given + word] |= took;
  }
  refile(page, entry.free - static_cast<std::int32_t>(taken));
  return taken;
}

BlockPool::Block BlockPool::state(std::int64_t block) const {
  const std::int64_t page = plan_.page_of(block);
  if (page < 0 || page >= static_cast<std::int64_t>(pages_.size()) || !at(page).open) {
    return Block::kNone;
  }
  const std::size_t bit = bit_of(page, block);
  if (test(given_bits_, bit)) return Block::kGiven;
  return test(free_bits_, bit) ? Block::kFree : Block::kHeld;
}

void BlockPool::set_given(std::int64_t block, bool given) {
  const std::size_t bit = bit_of(plan_.page_of(block), block);
  given ? set(&given_bits_, bit) : clear(&given_bits_, bit);
}

std::size_t BlockPool::hold(const std::vector<std::int64_t>& blocks) {
  for (std::size_t i = 0; i < blocks.size();) {
    if (state(blocks[i]) != Block::kGiven) return i;
    const std::int64_t page = plan_.page_of(blocks[i]);
    for (; i < blocks.size() && is_in(page, blocks[i]); ++i) {
      const std::size_t bit = bit_of(page, blocks[i]);
      if (!test(given_bits_, bit)) return i;
      clear(&given_bits_, bit);
    }
  }
  return blocks.size();
}

std::int64_t BlockPool::put(std::int64_t block) {
  const std::int64_t page = plan_.page_of(block);
  const std::size_t bit = bit_of(page, block);
  clear(&given_bits_, bit);
  set(&free_bits_, bit);
  refile(page, at(page).free + 1);
  return page;
}

void BlockPool::put(const std::vector<std::int64_t>& blocks, std::vector<std::int64_t>* emptied) {
  for (std::size_t i = 0; i < blocks.size();) {
    const std::int64_t page = plan_.page_of(blocks[i]);
    std::int32_t free = at(page).free;
    for (; i < blocks.size() && is_in(page, blocks[i]); ++i, ++free) {
      const std::size_t bit = bit_of(page, blocks[i]);
      clear(&given_bits_, bit);
      set(&free_bits_, bit);
    }
    refile(page, free);
    if (is_empty(page)) emptied->push_back(page);
  }
}

}  // namespace kv
