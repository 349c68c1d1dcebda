// What a Board keeps; shared by board.cc (making and reading) and direct.cc (telling processes).
// Threads and ownership as in board.h.
#ifndef HARNESS_BOARD_BOARD_IMPL_H_
#define HARNESS_BOARD_BOARD_IMPL_H_

#include <sys/mman.h>

#include <cstdint>
#include <string_view>

#include "harness/board/board.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"

namespace kv::drill {

struct Board::Impl {
  ~Impl();
  void make(const Options& options);

  bool is_torn(std::uint64_t sequence) const;
  bool is_gone(std::uint32_t process) const;
  // Sequence numbers given out that have a slot.
  std::uint64_t claimed() const;
  // The newest living process of that name with a command thread; null when there is none.
  ProcessSlot* listener(std::string_view name) const;
  OrderSlot* order(std::uint32_t id) const;
  void close_order(std::uint32_t id);

  void* mapping = MAP_FAILED;
  std::uint64_t bytes = 0;
  int board_fd = -1;
  View view;
  Writer writer;
  std::uint64_t token = 0;          // the last one in Layout::armed
  std::uint32_t overflow_told = 0;  // bits that overflow() has reported
};

}  // namespace kv::drill

#endif  // HARNESS_BOARD_BOARD_IMPL_H_
