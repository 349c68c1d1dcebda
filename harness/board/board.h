// The supervisor's side of the board: the one shared mapping of a drill, made here and handed to
// every process. Engine programs see only kvdrill.h; the layout of the mapping is in layout.h.
//
// Threads: a Board belongs to the single thread of its supervisor. The engines' threads write to
// the mapping at the same time; nothing here waits for one of them.
// Ownership: Board owns the mapping, the memory file and the eventfd; children inherit the two
// descriptors by number (board_fd(), wake_fd()), and forget them by close-on-exec otherwise.
#ifndef HARNESS_BOARD_BOARD_H_
#define HARNESS_BOARD_BOARD_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kv::drill {

struct Layout;  // layout.h

enum class EventKind : std::uint16_t {
  kPoint,     // a point, fault or step was reached; key is the site's, value the hit on that thread
  kDone,      // a fault or step ended; value is its result
  kNote,      // key and value are the engine's; text may be set
  kActed,     // an order acted: value is the order's id, text the action ("hold", "fail", ...)
  kReleased,  // a held thread goes on; value is the order's id
  kRegistered,  // a process registered; text is its name, value its pid
  kThread,      // a thread registered; text is its label, value its tid
  kAnnounced,   // name is the fact, text its value
  kReady,       // the process called kvdrill_ready()
  kCall,        // a call began; value is the call's id, name the command, text the call's name
  kReturn,      // a call returned; value is the call's id, name the command, text the answer;
                // key is 1 when it is an error
  kLog,         // key is the severity, text the line
  kCrash,  // value is the signal; text holds the frames, one per line: "module+0xoffset symbol"
  kStack,  // answer to dump_stacks(): text as for kCrash
  kClock,  // a process has taken over the moved clock; value is the time
  kSupervisor,  // written by the supervisor itself (steps, deaths, verdicts), for trace and picture
};

// One record of the flight recorder, decoded. Events have one order, the sequence; it agrees with
// every happens-before of the program.
struct Event {
  std::uint64_t sequence = 0;
  std::int64_t time_ns = 0;  // CLOCK_MONOTONIC
  EventKind kind{};
  std::uint16_t process = 0;  // index into processes(); 0 is the supervisor
  std::uint16_t thread = 0;   // index into the process's threads
  bool torn = false;          // its writer died while writing it; only sequence is meant
  std::string_view name;      // the site's or command's name; lives as long as the board
  std::int64_t key = 0;
  std::int64_t value = 0;
  std::string_view text;  // lives as long as the board
};

struct ThreadInfo {
  pid_t tid = 0;
  std::string label;
};

struct ProcessInfo {
  std::string name;
  pid_t pid = 0;        // 0: not registered yet
  bool forked = false;  // registered by a fork without an exec
  bool ready = false;
  bool takes_clock = false;  // it has set a callback for moves of the clock
  std::vector<ThreadInfo> threads;
};

enum class Action : std::uint32_t { kHold, kFail, kSkip, kCrash, kFreeze, kRun, kPretend };

// The note of a process that reached a site which it had not listed; text is the site's name.
inline constexpr std::string_view kUnlistedNote = "kvdrill.unlisted";

// What shall happen at a point. Matches by name, and by whichever of the others is set.
struct Order {
  Action action = Action::kHold;
  std::string site = {};                 // "vmm.map"; with ".done" for the end of a fault or step
  std::string process = {};              // empty: any
  std::string thread = {};               // empty: any; a label
  std::optional<std::int64_t> key = {};  // unset: any
  // 0: any hit. n: on each thread the n-th (from 1) and as many after it as `times` says; hits that
  // began before the order was given never count as its own.
  std::uint64_t first_hit = 0;
  std::uint64_t times = 1;     // acts at most this often, on all threads together; 0: always
  std::int64_t code = 0;       // kFail: the code; kCrash: the signal
  std::string command = {};    // kRun: command of the process
  std::string arguments = {};  // kRun: JSON text
  std::string call_name = {};  // kRun: of the call, in its kCall event; empty: the command
  std::uint32_t call_id = 0;   // kRun: of the call, in its kCall and kReturn events
};

// An order is counted before the event of the hit that it acts on is recorded, so whoever has seen
// the event can rely on `acted`.
struct OrderState {
  std::uint64_t acted = 0;    // how often it acted
  std::uint64_t holding = 0;  // threads that stand there now
};

class __attribute__((visibility("default"))) Board {
 public:
  struct Options {
    std::uint32_t events = 1 << 15;      // capacity of the flight recorder
    std::uint32_t text_bytes = 1 << 20;  // capacity for texts and names
    bool manual_clock = false;
    std::int64_t start_ns = 1'000'000'000;  // of a manual clock
    bool ready_waits = false;               // who is ready waits for admit()
  };
  // Throws std::system_error when the kernel refuses the memory or the descriptor.
  explicit Board(const Options& options);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int board_fd() const;
  int wake_fd() const;
  // "KVDRILL_BOARD=..." for a child that gets the two descriptors under the given numbers.
  static std::string environment(int board_fd, int wake_fd);

  // --- reading
  // All events with a sequence from `from` on, in order, up to the first that is claimed but not
  // written yet (a torn slot of a dead process is returned as torn). Advance by their number.
  std::vector<Event> events(std::uint64_t from) const;
  std::uint64_t next_sequence() const;
  // True when the recorder, the text store or a table is full: the run's verdict is `error`.
  std::optional<std::string> overflow() const;
  std::vector<ProcessInfo> processes() const;  // index 0 is the supervisor
  // Whether the process has this board in its memory: one that attached and then replaced itself by
  // exec has not. True when the kernel does not tell.
  bool is_mapped_by(pid_t pid) const;
  // Call it for a process that was reaped: its torn slots are torn from now on.
  void process_ended(pid_t pid);

  // --- waiting: arm_wake() says whether events(from) could be non-empty already (then do not
  // sleep); otherwise the next event writes to wake_fd(). disarm_wake() after the sleep.
  bool arm_wake(std::uint64_t from);
  void disarm_wake();

  // --- orders; they may be given before the process exists. Returns the order's id, 0 when the
  // table is full (an overflow; no function minds that id). Orders that match the same hit act one
  // after the other as they were given, but a hit fails, or is skipped, by one order only.
  std::uint32_t give(const Order& order);
  // Lets go the threads held or frozen by it now and ends the order.
  void release(std::uint32_t order);
  // The order acts no more; who is held stays held.
  void withdraw(std::uint32_t order);
  OrderState state(std::uint32_t order) const;
  // Lets everything go and ends all orders (the drill is over).
  void release_all();

  // --- commands to a process, by its name. False: no such process, or its mailbox is full.
  // A call's id comes back in its kCall and kReturn events.
  bool call(std::string_view process, std::string_view command, std::string_view arguments,
            std::string_view call_name, std::uint32_t call_id);
  // how: "return", "exit", "_exit", "abort", "quick_exit".
  bool tell_exit(std::string_view process, std::string_view how, int code);

  // Lets the process with this index, which stands in kvdrill_ready(), go on
  // (Options::ready_waits).
  void admit(std::uint16_t process);

  // --- clock: moves a manual clock forward and rings every process. A process has taken it over
  // when its kClock event with that time is there.
  void set_clock(std::int64_t now_ns);
  std::int64_t clock_now() const;

  // Writes an event of the supervisor's own.
  void record(std::string_view name, std::int64_t key, std::int64_t value, std::string_view text);

  // Asks a thread of a living process for its stack; the answer is a kStack event. False: it is
  // gone, or does not take that signal any more (it has replaced itself by exec, say).
  bool dump_stack(pid_t pid, pid_t tid);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kv::drill

#endif  // HARNESS_BOARD_BOARD_H_
