// The board as it lies in memory: one file mapping, shared by the supervisor and every process of a
// drill, of a size fixed when it was made. Both sides of the library include this; nobody else
// does.
//
//   offset 0      Layout: geometry, clock, counters, names, processes with their mailboxes
//   threads_at    ThreadSlot[thread_capacity]
//   orders_at     OrderSlot[order_capacity]
//   events_at     EventSlot[event_capacity], the flight recorder
//   text_at       bytes: every name, label, argument and answer, allocated by moving a counter up
//
// Any process may be killed at any instruction, so nothing here can be left locked: a table entry
// is claimed by one atomic step and belongs to its claimant for ever, and a claimed entry that was
// never finished is simply never looked at. Nothing is ever reused, so nothing read once can change
// its meaning; what runs out sets a bit in `overflow`, and the run's verdict is then an error.
//
// Threads: fields that are not atomic are written before the atomic field that publishes them.
// Ownership: none; a View (below) says where the parts lie in this process.
#ifndef HARNESS_BOARD_LAYOUT_H_
#define HARNESS_BOARD_LAYOUT_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kv::drill {

inline constexpr std::uint64_t kBoardMagic = 0x6472616f6264766bull;  // "kvdboard"
inline constexpr std::uint32_t kBoardVersion = 2;                    // of this file
inline constexpr std::uint32_t kMaxNames = 2048;
inline constexpr std::uint32_t kMaxProcesses = 256;
inline constexpr std::uint32_t kMailboxSlots = 16;
inline constexpr std::uint32_t kActions = 7;            // of board.h's Action
inline constexpr std::uint32_t kMaxNote = 4000;         // bytes kept of a note or a log line
inline constexpr std::uint32_t kMaxAnswer = 64 * 1024;  // bytes kept of an answer or arguments

// A piece of the text area. length 0: no text.
struct TextRef {
  std::uint32_t offset = 0;  // from text_at
  std::uint32_t length = 0;  // bytes, without a terminator
};
constexpr std::uint64_t pack(TextRef ref) {
  return std::uint64_t{ref.offset} << 32 | ref.length;
}
constexpr TextRef unpack(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
}

// One event. `stamp` is written last; until then the slot is claimed, or torn if its writer is
// dead.
struct alignas(64) EventSlot {
  std::atomic<std::uint64_t> stamp;  //  0: sequence + 1; 0 while not whole
  std::int64_t time_ns;              //  8: CLOCK_MONOTONIC
  std::int64_t key;                  // 16
  std::int64_t value;                // 24
  TextRef text;                      // 32
  std::uint32_t name;                // 40: id of a name, 0 none
  std::uint16_t kind;                // 44: EventKind
  std::uint16_t process;             // 46: index into processes
  std::uint16_t thread;              // 48: index among the process's threads
  std::uint16_t unused[7];           // 50
};
static_assert(sizeof(EventSlot) == 64);
static_assert(offsetof(EventSlot, thread) == 48);

// What a thread is writing; it tells whose a claimed and unwritten event is. See recorder.h.
inline constexpr std::uint64_t kIdle = 0;
inline constexpr std::uint64_t kClaiming = 1;  // about to claim, or has just claimed
inline constexpr std::uint64_t kClaimed = 2;   // + sequence

// In ThreadSlot::held_by: the thread is stopping its process, and nothing keeps it from it any
// more.
inline constexpr std::uint32_t kStopping = std::uint32_t{1} << 31;

// A thread that has met the board. One cache line, so that threads do not disturb each other.
struct alignas(64) ThreadSlot {
  std::atomic<std::uint32_t> state;  //  0: 1 when the fields below are there
  std::uint32_t process;             //  4: index
  std::uint32_t index;               //  8: among the process's threads
  pid_t tid;                         // 12
  std::atomic<std::uint64_t> label;  // 16: packed TextRef
  // 24: [0] the thread itself, [1] its signal handlers, which may interrupt the first.
  std::atomic<std::uint64_t> writing[2];
  std::atomic<std::uint32_t>
      held_by;  // 40: id of the order that holds or freezes it, 0 none; and kStopping
};
static_assert(sizeof(ThreadSlot) == 64);

// A command on its way to a process.
struct MailSlot {
  std::uint32_t call_id;
  std::uint32_t command;  // id of a name
  TextRef arguments;
  TextRef call_name;
};

// ProcessSlot::ready. A process that said it stands in kvdrill_ready() until that was seen, where
// Layout::ready_waits asks for it.
enum : std::uint32_t { kNotReady, kReadySaid, kReadySeen };

enum : std::uint32_t { kExitNone, kExitReturn, kExitExit, kExitUnder, kExitAbort, kExitQuick };

// A process of the drill. Index 0 is the supervisor.
struct alignas(64) ProcessSlot {
  std::atomic<std::uint32_t> state;     //  0: 1 when pid, name and flags are there
  pid_t pid;                            //  4
  std::uint32_t name;                   //  8: id of a name
  std::uint32_t forked;                 // 12: registered by a fork without an exec
  std::atomic<std::uint32_t> threads;   // 16: indices given out
  std::atomic<std::uint32_t> ready;     // 20: futex word of kvdrill_ready()
  std::atomic<std::uint32_t> serving;   // 24: it has a command thread
  std::atomic<std::uint32_t> stacks;    // 28: it answers the stack signal
  std::atomic<std::uint32_t> ended;     // 32: the supervisor saw its end
  std::int32_t exit_code;               // 36: for exit_how
  std::atomic<std::uint32_t> exit_how;  // 40: futex word of kvdrill_serve()
  std::atomic<std::uint32_t> bell;      // 44: futex word of the command thread
  std::atomic<std::uint32_t> head;      // 48: commands put in, by the supervisor alone
  std::atomic<std::uint32_t> tail;      // 52: commands taken out, by the command thread alone
  std::atomic<std::uint32_t> clock;     // 56: it has set a callback for moves of the clock
  MailSlot mail[kMailboxSlots];         // 60
};

// `acted` counts how often an order acted; with this bit it acts no more. One word, so that an
// order that was withdrawn has an exact and final count.
inline constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

struct alignas(64) OrderSlot {
  std::atomic<std::uint32_t> given;     //   0: 1 when the fields below are there
  std::uint32_t action;                 //   4: Action
  std::uint32_t site;                   //   8: id of a name, without ".done"
  std::uint32_t done;                   //  12: 1: the end of a fault or step
  std::uint32_t process;                //  16: id of a name, 0 any
  std::uint32_t has_key;                //  20
  std::int64_t key;                     //  24
  std::uint64_t first_hit;              //  32: 0 any
  std::uint64_t times;                  //  40: 0 always
  std::int64_t code;                    //  48
  TextRef thread;                       //  56: a label, empty: any
  std::uint32_t command;                //  64: id of a name
  std::uint32_t call_id;                //  68
  TextRef arguments;                    //  72
  TextRef call_name;                    //  80
  std::atomic<std::uint64_t> acted;     //  88: count, and kClosed
  std::atomic<std::uint32_t> released;  // 96: futex word of the threads that it holds
};
static_assert(sizeof(OrderSlot) == 128);

// Bits of Layout::overflow.
enum : std::uint32_t {
  kFullEvents = 1,
  kFullText = 2,
  kFullNames = 4,
  kFullProcesses = 8,
  kFullThreads = 16,
  kFullOrders = 32,
};

struct Layout {
  // Geometry: written once, before any other process sees the board.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t manual_clock;
  std::uint64_t bytes;  // of the whole mapping
  std::uint32_t event_capacity;
  std::uint32_t thread_capacity;
  std::uint32_t order_capacity;
  std::uint32_t text_capacity;
  std::uint32_t ready_waits;
  std::uint64_t threads_at, orders_at, events_at, text_at;  // bytes from the start
  TextRef action_names[kActions];

  // Each of the counters that many threads write has a cache line of its own.
  alignas(64) std::atomic<std::uint64_t> next;   // the sequence: events claimed so far
  alignas(64) std::atomic<std::uint64_t> armed;  // not 0: the supervisor sleeps; see recorder.h
  alignas(64) std::atomic<std::uint64_t> text_used;
  // Read at every point, written only by the supervisor. order_generation starts at 1.
  alignas(64) std::atomic<std::uint32_t> order_generation;
  std::atomic<std::uint32_t> orders_used;
  std::atomic<std::uint32_t> orders_open;  // all orders before this index are closed
  std::atomic<std::uint32_t> clock_moves;
  std::atomic<std::int64_t> clock_ns;  // of a manual clock
  alignas(64) std::atomic<std::uint32_t> overflow;
  std::atomic<std::uint32_t> processes_used;
  std::atomic<std::uint32_t> threads_used;

  // Name id n is names[n - 1]: a packed TextRef, found by hash and linear probing, 0 free.
  alignas(64) std::atomic<std::uint64_t> names[kMaxNames];
  ProcessSlot processes[kMaxProcesses];
};
// The first bytes of every layout, past and future, by which a board is recognised.
struct Prologue {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t manual_clock;
  std::uint64_t bytes;
};
static_assert(offsetof(Layout, version) == offsetof(Prologue, version) &&
              offsetof(Layout, bytes) == offsetof(Prologue, bytes));
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Where the parts of a board lie in this process. Limits are copied, so that a process that writes
// wildly over the header cannot lead a reader out of the mapping.
struct View {
  Layout* head = nullptr;
  ThreadSlot* threads = nullptr;
  OrderSlot* orders = nullptr;
  EventSlot* events = nullptr;
  char* text = nullptr;
  std::uint32_t event_capacity = 0, thread_capacity = 0, order_capacity = 0, text_capacity = 0;
  int wake_fd = -1;

  View() = default;
  View(void* mapping, int wake) : head(static_cast<Layout*>(mapping)), wake_fd(wake) {
    char* start = static_cast<char*>(mapping);
    threads = reinterpret_cast<ThreadSlot*>(start + head->threads_at);
    orders = reinterpret_cast<OrderSlot*>(start + head->orders_at);
    events = reinterpret_cast<EventSlot*>(start + head->events_at);
    text = start + head->text_at;
    event_capacity = head->event_capacity;
    thread_capacity = head->thread_capacity;
    order_capacity = head->order_capacity;
    text_capacity = head->text_capacity;
  }

  // Empty when the reference leads out of the text area.
  std::string_view text_of(TextRef ref) const {
    if (ref.offset > text_capacity || ref.length > text_capacity - ref.offset) return {};
    return {text + ref.offset, ref.length};
  }
  std::string_view name_of(std::uint32_t id) const {
    if (id == 0 || id > kMaxNames) return {};
    return text_of(unpack(head->names[id - 1].load(std::memory_order_acquire)));
  }
  std::uint32_t processes() const { return bounded(head->processes_used, kMaxProcesses); }
  std::uint32_t thread_count() const { return bounded(head->threads_used, thread_capacity); }
  std::uint32_t order_count() const { return bounded(head->orders_used, order_capacity); }

 private:
  static std::uint32_t bounded(const std::atomic<std::uint32_t>& used, std::uint32_t limit) {
    const std::uint32_t n = used.load(std::memory_order_acquire);
    return n < limit ? n : limit;
  }
};

}  // namespace kv::drill

#endif  // HARNESS_BOARD_LAYOUT_H_
