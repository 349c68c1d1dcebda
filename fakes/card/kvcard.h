/* kvcard.h - controls of the fake card that no real driver has, for tests and engine programs.
 *
 * A kernel in flight is modelled by a stream that is held: work that reads a range of device memory
 * and does not end before it is released. The symbols are exported by the card's libcuda.so.1; look
 * them up with dlsym, so that a program also runs on a real driver.
 *
 * Threads: any. Ownership: nothing passes. Results are CUresult.
 */
#ifndef FAKES_CARD_KVCARD_H_
#define FAKES_CARD_KVCARD_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queues work on `stream` (null: the default stream) that uses [address, address + size) from the
 * moment it starts until kvcardReleaseStream; size 0: it only keeps the stream busy. Unmapping a
 * page of the range meanwhile ends the work with 700 and poisons the context (recorded).
 * Needs a current context, as a launch does. Does not wait for the work to start. */
unsigned kvcardHoldStream(void* stream, unsigned long long address, size_t size);
/* Waits until the work queued by the last kvcardHoldStream of `stream` runs: 0, or 700 or 709 when
 * the context died first. */
unsigned kvcardAwaitHold(void* stream);
/* Lets all held work of `stream` end, running or still queued. */
unsigned kvcardReleaseStream(void* stream);

/* The process kills itself (SIGKILL) inside the card's accounting, at the `count`-th place from now
 * where it could be torn; 0 switches it off. Returns how many places were passed since the last
 * call. */
unsigned kvcardTearAfter(unsigned count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FAKES_CARD_KVCARD_H_ */
