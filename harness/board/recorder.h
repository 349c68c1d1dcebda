// Writing to the board: texts, names and events; the same code on both sides. Everything here is
// inline and made of atomics only, so it is async-signal-safe.
//
// An event is written in four moves: claim the next sequence number, say which one was claimed in
// the thread's slot, fill the event, stamp it. The sequence is relaxed, and no move here is an
// acquire that could pair with another writer's release: a recorder that ordered the program's
// threads would hide their races from a race detector. Coherence of the one counter is enough for
// the sequence to agree with every happens-before.
//
// Threads: any. Ownership: none.
#ifndef HARNESS_BOARD_RECORDER_H_
#define HARNESS_BOARD_RECORDER_H_

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "harness/board/board.h"
#include "harness/board/layout.h"

namespace kv::drill {

// Orders a store before a later load, or an atomic read-modify-write that went before. On x86 every
// locked instruction has done that already; elsewhere it is an instruction of its own. Written as
// such because race detectors do not know std::atomic_thread_fence.
inline void machine_fence() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#elif defined(__aarch64__)
  asm volatile("dmb ish" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

// Wakes the supervisor if it sleeps; call it after what it shall see was written by a locked
// instruction (or with a machine_fence() between).
//
// No wake-up is lost: the supervisor stores a fresh token in `armed`, then looks at the board once
// more, then sleeps; a writer writes, then looks at `armed`. Each has a full barrier between its
// two moves, so at least one of them sees the other. The token is taken back only after the eventfd
// was written: a writer killed in between leaves the flag up, and the next one wakes again. It is
// taken back by compare-exchange, so a slow writer cannot take back a later token.
inline void wake_supervisor(const View& view) {
  std::uint64_t token = view.head->armed.load(std::memory_order_relaxed);
  if (token == 0) [[likely]]
    return;
  const int saved = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(view.wake_fd, &one, sizeof one);
  view.head->armed.compare_exchange_strong(token, 0, std::memory_order_relaxed);
  errno = saved;
}

inline void set_overflow(const View& view, std::uint32_t what) {
  view.head->overflow.fetch_or(what, std::memory_order_relaxed);
  machine_fence();
  wake_supervisor(view);
}

// Puts a copy of `text` on the board, at most `limit` bytes of it (never half a UTF-8 character).
// Empty when there is no room; that is an overflow.
inline TextRef put_text(const View& view, std::string_view text, std::uint32_t limit) {
  if (text.size() > limit) {
    text = text.substr(0, limit);
    while (!text.empty() && (text.back() & 0xc0) == 0x80) text.remove_suffix(1);
    if (!text.empty() && (text.back() & 0x80) != 0) text.remove_suffix(1);
  }
  if (text.empty()) return {};
  const std::uint64_t at = view.head->text_used.fetch_add(text.size(), std::memory_order_relaxed);
  if (at + text.size() > view.text_capacity) {
    set_overflow(view, kFullText);
    return {};
  }
  std::memcpy(view.text + at, text.data(), text.size());
  return {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(text.size())};
}

inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// The id of a name, the same in every process; 0 for the empty name, or when the table is full.
// A name lost to another process's claim of the same entry costs its bytes in the text area.
inline std::uint32_t intern(const View& view, std::string_view name) {
  if (name.empty()) return 0;
  name = name.substr(0, kMaxNote);
  TextRef mine;
  const std::uint64_t hash = hash_of(name);
  for (std::uint32_t probe = 0; probe < kMaxNames; ++probe) {
    const auto index = static_cast<std::uint32_t>((hash + probe) % kMaxNames);
    std::atomic<std::uint64_t>& entry = view.head->names[index];
    std::uint64_t word = entry.load(std::memory_order_acquire);
    if (word == 0) {
      if (mine.length == 0) mine = put_text(view, name, kMaxNote);
      if (mine.length == 0) return 0;
      if (entry.compare_exchange_strong(word, pack(mine), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        return index + 1;
      }
    }
    if (view.text_of(unpack(word)) == name) return index + 1;
  }
  set_overflow(view, kFullNames);
  return 0;
}

// Who writes: a thread's slot, and whether it is the thread itself (0) or a signal handler on it
// (1).
struct Writer {
  ThreadSlot* slot = nullptr;
  std::uint16_t process = 0;
  std::uint16_t thread = 0;
  int level = 0;
};

struct Draft {
  EventKind kind{};
  std::uint32_t name = 0;
  std::int64_t key = 0;
  std::int64_t value = 0;
  TextRef text{};
};

// First half of an event: the sequence number is this writer's from here on. The slot says so
// before (kClaiming) and after, so that a claim is never without a possible owner.
inline std::uint64_t claim_event(const View& view, const Writer& writer) {
  std::atomic<std::uint64_t>& writing = writer.slot->writing[writer.level];
  writing.store(kClaiming, std::memory_order_relaxed);
  machine_fence();
  const std::uint64_t sequence = view.head->next.fetch_add(1, std::memory_order_relaxed);
  writing.store(kClaimed + sequence, std::memory_order_relaxed);
  return sequence;
}

// Second half: the event is whole, and the supervisor knows.
inline void commit_event(const View& view, const Writer& writer, std::uint64_t sequence,
                         std::int64_t time_ns, const Draft& draft) {
  std::atomic<std::uint64_t>& writing = writer.slot->writing[writer.level];
  if (sequence >= view.event_capacity) [[unlikely]] {
    writing.store(kIdle, std::memory_order_relaxed);
    set_overflow(view, kFullEvents);
    return;
  }
  EventSlot& event = view.events[sequence];
  // The exchange below waits for the event's cache line; whoever comes a little later finds it
  // here.
  __builtin_prefetch(&view.events[sequence + 6], 1);
  event.time_ns = time_ns;
  event.key = draft.key;
  event.value = draft.value;
  event.text = draft.text;
  event.name = draft.name;
  event.kind = static_cast<std::uint16_t>(draft.kind);
  event.process = writer.process;
  event.thread = writer.thread;
  // An exchange, not a store: it is the barrier between the event and the look at `armed`.
  event.stamp.exchange(sequence + 1, std::memory_order_release);
  writing.store(kIdle, std::memory_order_release);
  machine_fence();
  wake_supervisor(view);
}

inline void write_event(const View& view, const Writer& writer, const Draft& draft) {
  const std::int64_t now = monotonic_ns();
  commit_event(view, writer, claim_event(view, writer), now, draft);
}

// Claims the next entry of a table; unset and an overflow when it is full.
inline std::optional<std::uint32_t> claim_entry(const View& view, std::atomic<std::uint32_t>& used,
                                                std::uint32_t capacity, std::uint32_t full) {
  std::uint32_t index = used.load(std::memory_order_relaxed);
  do {
    if (index >= capacity) {
      set_overflow(view, full);
      return std::nullopt;
    }
  } while (!used.compare_exchange_weak(index, index + 1, std::memory_order_relaxed));
  return index;
}

// A slot for a thread of the process. The label is put on the board; empty gives "thread-<n>".
inline ThreadSlot* claim_thread(const View& view, std::uint32_t process, pid_t tid,
                                std::string_view label) {
  const auto at = claim_entry(view, view.head->threads_used, view.thread_capacity, kFullThreads);
  if (!at) return nullptr;
  ThreadSlot& slot = view.threads[*at];
  slot.process = process;
  slot.index = view.head->processes[process].threads.fetch_add(1, std::memory_order_relaxed);
  slot.tid = tid;
  char numbered[24] = "thread-";
  if (label.empty()) {
    char digits[12];
    std::size_t n = 0;
    for (std::uint32_t left = slot.index; n == 0 || left != 0; left /= 10) {
      digits[n++] = static_cast<char>('0' + left % 10);
    }
    std::reverse_copy(digits, digits + n, numbered + 7);
    label = {numbered, 7 + n};
  }
  slot.label.store(pack(put_text(view, label, 200)), std::memory_order_relaxed);
  slot.state.store(1, std::memory_order_release);
  return &slot;
}

}  // namespace kv::drill

#endif  // HARNESS_BOARD_RECORDER_H_
