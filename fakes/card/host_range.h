// Address space of the host set aside for device addresses: without rights, so that a host access
// ends in SIGSEGV as on a real card, and so that no other mapping can lie there.
//
// Threads: any. Ownership: whoever reserves gives back.
#ifndef FAKES_CARD_HOST_RANGE_H_
#define FAKES_CARD_HOST_RANGE_H_

#include <cstdint>

#include "fakes/card/cuda_abi.h"

namespace kv::card {

// `size` is a multiple of the host's page, `alignment` a power of two. 0: none to be had.
CUdeviceptr reserve_host_range(std::uint64_t size, std::uint64_t alignment);
void free_host_range(CUdeviceptr address, std::uint64_t size);

}  // namespace kv::card

#endif  // FAKES_CARD_HOST_RANGE_H_
