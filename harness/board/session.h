// A process's own side of the library: what it knows of itself while a drill runs. Internal; the
// functions of kvdrill.h are spread over attach, thread, record, orders, mailbox and crash.
//
// The hot path is: is there a board, who am I, which site, was an order given since. Everything
// else is out of line.
//
// Threads: `session` is written under its mutex while attaching, then read by all. Ownership:
// a Session and what it points to live as long as the process; a ThreadState as long as its thread.
#ifndef HARNESS_BOARD_SESSION_H_
#define HARNESS_BOARD_SESSION_H_

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"

namespace kv::drill {

// How often this thread was at a site, by the site's id.
struct Hits {
  std::uint32_t reached = 0;
  std::uint32_t done = 0;
};

struct ThreadState {
  ThreadSlot* slot = nullptr;
  Writer writer;
  Hits* hits = nullptr;             // [kMaxNames + 1]
  std::uint32_t running = 0;        // id of the `run` order being carried out on this thread
  void* alternate_stack = nullptr;  // for signal handlers; null when the thread had one already
  int rounds = 0;                   // of its destructor
  // Short texts that this thread has put on the board lately: most notes repeat themselves.
  struct Known {
    std::uint64_t hash = 0;
    TextRef ref;
  };
  std::array<Known, 32> known{};
};

// Plain data with a fixed place (initial-exec): signal handlers read it.
struct ThreadLocal {
  ThreadState* state = nullptr;
  ThreadSlot* early = nullptr;  // claimed by a signal handler on a thread not registered yet
  bool crashing = false;
};
extern constinit thread_local ThreadLocal this_thread __attribute__((tls_model("initial-exec")));

struct Session {
  // Set last. Null: not attached, and every function of kvdrill.h is harmless.
  std::atomic<const View*> view{nullptr};
  // Index of this process; kUnregistered in a child after fork() until its first event.
  std::atomic<std::uint32_t> process{0};
  std::atomic<std::uint32_t> name{0};                  // id of this process's name on the board
  std::uint32_t label_note = 0;                        // id of "thread.label"
  std::atomic<const kvdrill_engine*> engine{nullptr};  // null: only a library attached
  bool stacks = false;                                 // the stack handler is installed
  sigset_t signals{};  // of the thread that attached; the threads of calls get it too
  struct Clock {
    void (*moved)(void* user, std::int64_t now) = nullptr;
    void* user = nullptr;
  };
  std::atomic<const Clock*> clock{nullptr};
};
inline constexpr std::uint32_t kUnregistered = ~std::uint32_t{0};
extern constinit Session session;

// --- attach.cc
// The board of this process, or null.
inline const View* board() {
  return session.view.load(std::memory_order_acquire);
}
// Registers a forked child; true when it was this call that did it. Afterwards session.process is
// valid, or still kUnregistered when the table of processes is full.
bool register_child(const View& view);
// Records that this process is on the board.
void report_registered(const View& view);
inline ProcessSlot& own_process(const View& view) {
  return view.head->processes[session.process.load(std::memory_order_relaxed)];
}
// Gives the sites their ids, and lists their names.
void name_sites(const View& view, kvdrill_site* first);
// Whether a site of this name (its id) was listed by the engine or by a library.
bool is_listed(std::uint32_t id);
// Tells the user about a mistake in the environment or in the use of kvdrill.h; one line.
void complain(std::string_view text);

// --- thread.cc
// Registers the calling thread under `label` (empty: a number). Null when a table is full.
ThreadState* register_thread(const View& view, std::string_view label);
void set_label(const View& view, std::string_view label);
// Every other thread that this process has now gets the label.
void label_other_threads(const View& view, std::string_view label);
// In the child after fork(): the calling thread is nobody yet.
void forget_thread();
// Creates the key by whose destructor a thread's state ends; false when there is none left.
bool prepare_threads();
inline ThreadState* here(const View& view) {
  ThreadState* state = this_thread.state;
  return state != nullptr ? state : register_thread(view, {});
}

// --- record.cc
// A short text that was recorded by this thread lately is not stored again.
TextRef put_known_text(const View& view, ThreadState& thread, std::string_view text);
// Records an event of the calling thread.
void record(const View& view, const Draft& draft);

// --- orders.cc
enum Moment : std::uint32_t { kAtReach = 1, kAtDone = 2 };
std::uint32_t refresh_orders(const View& view, kvdrill_site* site, std::uint32_t id);
// Whether any order is for this moment of the site. One word caches it, in harness_data: the
// generation of the orders, and what was found then.
inline bool orders_for(const View& view, kvdrill_site* site, std::uint32_t id, Moment moment) {
  const std::uint32_t generation = view.head->order_generation.load(std::memory_order_acquire);
  std::uint64_t cached =
      reinterpret_cast<std::uint64_t>(__atomic_load_n(&site->harness_data, __ATOMIC_RELAXED));
  if ((cached >> 2) != generation) [[unlikely]] {
    cached = refresh_orders(view, site, id);
  }
  return (cached & moment) != 0;
}

struct Reached {
  kvdrill_site* site;
  std::uint32_t id;
  std::int64_t key;
  std::uint64_t hit;
  Moment moment;
  std::uint32_t role;  // enum kvdrill_kind, of the function that was called
};
struct Outcome {
  std::int32_t code = 0;
  bool skip = false;
};
// The orders that act on one hit, in turn. More than these keep theirs for a later hit.
struct Claims {
  std::array<std::uint32_t, 16> orders;  // indices
  std::uint32_t count = 0;
};
// Finds and counts the orders that act on this hit. Done before the hit is recorded: who has seen
// the event finds the count as it stays, and gives orders for later hits only.
Claims claim_orders(const View& view, const ThreadState& thread, const Reached& at);
// Carries them out. May block; leaves errno as it was.
Outcome obey(const View& view, ThreadState& thread, const Reached& at, const Claims& claims);

// --- mailbox.cc
// Starts the command thread; false when the kernel refuses it.
bool start_commands(const View& view);
struct Command {
  std::uint32_t name;  // id
  std::string_view arguments;
  std::string_view call_name;
  std::uint32_t call_id;
  bool by_call;  // from the mailbox; else by an order, on a thread of the engine's
};
// Carries the command out on this thread, with its kCall and kReturn events.
void run_command(const View& view, const Command& command);

// --- crash.cc
void install_crash_handler();
bool install_stack_handler();
int stack_signal();  // also used by the supervisor
// An alternate stack for the calling thread's handlers, unless it has one.
void* give_alternate_stack();
void take_alternate_stack(void* stack);

// --- frames.cc
// Writes the frames of an interrupted thread, one per line, "module+0xoffset symbol"; returns the
// length. Async-signal-safe once prepare_frames() has run. `context` is the handler's third
// argument.
std::size_t write_frames(const void* context, char* to, std::size_t room);
void prepare_frames();

// --- describe.cc
void keep_sites(kvdrill_site* first);

}  // namespace kv::drill

#endif  // HARNESS_BOARD_SESSION_H_
