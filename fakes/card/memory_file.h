// The bytes of all devices, in one file: what a physical page holds lies at the page's offset, so
// two mappings of a page, in one process or in two, are really the same bytes. What was never
// written, or was given back, reads as zero and takes no room.
//
// Threads: any; concurrent accesses to the same bytes are as undefined as on a device.
// Ownership: the descriptor stays the store's.
#ifndef FAKES_CARD_MEMORY_FILE_H_
#define FAKES_CARD_MEMORY_FILE_H_

#include <cstdint>

#include "fakes/card/cuda_abi.h"

namespace kv::card {

class MemoryFile {
 public:
  explicit MemoryFile(int fd) : fd_(fd) {}

  // INVALID_VALUE: the host range is not accessible. UNKNOWN: the file could not take it (said on
  // standard error), as a defect of the hardware would.
  CUresult read(std::uint64_t offset, void* to, std::uint64_t size) const;
  CUresult write(std::uint64_t offset, const void* from, std::uint64_t size) const;
  CUresult copy(std::uint64_t to, std::uint64_t from, std::uint64_t size) const;
  // Fills with `width` bytes (1 or 4) of `value`; size is a multiple of width.
  CUresult fill(std::uint64_t offset, std::uint32_t value, unsigned width,
                std::uint64_t size) const;
  // The range reads as zero and takes no room afterwards. False: the file system cannot do that.
  bool give_back(std::uint64_t offset, std::uint64_t size) const;

 private:
  const int fd_;
};

}  // namespace kv::card

#endif  // FAKES_CARD_MEMORY_FILE_H_
