// Who is alive, asked of the kernel: a byte of a file is locked exclusively by an open file
// description, and the lock goes when the last descriptor of that description is closed anywhere:
// at any death, and not before a copy in another process or in flight in a socket is gone as well.
//
// Threads: any. Ownership: descriptors stay the caller's.
#ifndef FAKES_CARD_BYTE_LOCK_H_
#define FAKES_CARD_BYTE_LOCK_H_

#include <cstdint>

namespace kv::card {

// Locks byte `index` for the open file description behind `fd`, without waiting. False: it is
// another's.
bool lock_byte(int fd, std::uint64_t index);
// The same, waiting until it is free. False: an error (errno).
bool await_byte(int fd, std::uint64_t index);
void unlock_byte(int fd, std::uint64_t index);
// True when an open file description other than that of `fd` has locked the byte.
bool byte_is_locked(int fd, std::uint64_t index);

// A new open file description of the file behind `fd`, which may have no name; -1: an error.
int reopen(int fd);

}  // namespace kv::card

#endif  // FAKES_CARD_BYTE_LOCK_H_
