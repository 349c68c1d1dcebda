// The supervisor makes the board, reads it, and sleeps until something is written to it.
#include "harness/board/board.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/board/board_impl.h"
#include "harness/board/layout.h"
#include "harness/board/proc_stat.h"
#include "harness/board/recorder.h"

namespace kv::drill {
namespace {

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + 63) & ~std::uint64_t{63};
}

[[noreturn]] void refuse(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Where everything lies. Threads and orders come with events, so their tables grow with them.
void plan(const Board::Options& options, Layout* layout) {
  layout->magic = kBoardMagic;
  layout->version = kBoardVersion;
  layout->manual_clock = options.manual_clock ? 1 : 0;
  layout->ready_waits = options.ready_waits ? 1 : 0;
  layout->event_capacity = std::max(options.events, 64u);
  layout->thread_capacity = std::clamp(layout->event_capacity / 8, 256u, 16384u);
  layout->order_capacity = std::clamp(layout->event_capacity / 32, 256u, 4096u);
  layout->text_capacity = std::max(options.text_bytes, 4096u);
  layout->threads_at = aligned(sizeof(Layout));
  layout->orders_at = layout->threads_at + layout->thread_capacity * sizeof(ThreadSlot);
  layout->events_at = layout->orders_at + layout->order_capacity * sizeof(OrderSlot);
  layout->text_at = layout->events_at + layout->event_capacity * sizeof(EventSlot);
  layout->bytes = layout->text_at + aligned(layout->text_capacity);
}

// The file cannot change its size any more: nobody who maps it can lose a page of it.
int make_file(std::uint64_t bytes) {
  const int fd = ::memfd_create("kvdrill-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) refuse("board: memfd_create");
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int saved = errno;
    ::close(fd);
    errno = saved;
    refuse("board: sizing the memory file");
  }
  return fd;
}

}  // namespace

void Board::Impl::make(const Options& options) {
  const auto sizes = std::make_unique<Layout>();
  plan(options, sizes.get());
  bytes = sizes->bytes;
  board_fd = make_file(bytes);
  mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, board_fd, 0);
  if (mapping == MAP_FAILED) refuse("board: mmap");
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) refuse("board: eventfd");
  // All of it is zero, which is the initial value of every atomic here.
  plan(options, static_cast<Layout*>(mapping));
  view = View(mapping, wake);
  view.head->order_generation.store(1);
  view.head->clock_ns.store(options.start_ns);
  constexpr std::string_view kNames[kActions] = {"hold",   "fail", "skip",   "crash",
                                                 "freeze", "run",  "pretend"};
  for (std::uint32_t i = 0; i < kActions; ++i) {
    view.head->action_names[i] = put_text(view, kNames[i], kMaxNote);
  }
  ProcessSlot& own = view.head->processes[0];
  own.pid = ::getpid();
  own.name = intern(view, "supervisor");
  view.head->processes_used.store(1);
  own.state.store(1);
  writer.slot = claim_thread(view, 0, ::getpid(), "supervisor");
}

Board::Impl::~Impl() {
  if (mapping != MAP_FAILED) ::munmap(mapping, bytes);
  if (view.wake_fd >= 0) ::close(view.wake_fd);
  if (board_fd >= 0) ::close(board_fd);
}

// A claimed and unwritten event is torn when nobody alive can be its writer: no living thread is
// claiming, or has claimed just this one. Whoever claimed it had said so before (recorder.h), so a
// thread that does not say so is not its writer, or has stamped it by now.
bool Board::Impl::is_torn(std::uint64_t sequence) const {
  for (std::uint32_t i = 0; i < view.thread_count(); ++i) {
    const ThreadSlot& thread = view.threads[i];
    if (thread.state.load(std::memory_order_acquire) == 0) continue;
    bool writes = false;
    for (const std::atomic<std::uint64_t>& writing : thread.writing) {
      const std::uint64_t now = writing.load(std::memory_order_acquire);
      writes = writes || now == kClaiming || now == kClaimed + sequence;
    }
    if (writes && !is_gone(thread.process)) return false;
  }
  return view.events[sequence].stamp.load(std::memory_order_acquire) == 0;
}

// Also a process that others reap, a grandchild, is gone at last; and one that nobody reaps writes
// no more.
bool Board::Impl::is_gone(std::uint32_t process) const {
  if (process >= kMaxProcesses) return true;
  const ProcessSlot& slot = view.head->processes[process];
  if (slot.ended.load(std::memory_order_relaxed) != 0) return true;
  return state_in("/proc/" + std::to_string(slot.pid) + "/stat") == 'Z' ||
         (::kill(slot.pid, 0) != 0 && errno == ESRCH);
}

std::uint64_t Board::Impl::claimed() const {
  return std::min<std::uint64_t>(view.head->next.load(std::memory_order_acquire),
                                 view.event_capacity);
}

Board::Board(const Options& options) : impl_(std::make_unique<Impl>()) {
  impl_->make(options);
}
Board::~Board() = default;

int Board::board_fd() const {
  return impl_->board_fd;
}
int Board::wake_fd() const {
  return impl_->view.wake_fd;
}

std::string Board::environment(int board_fd, int wake_fd) {
  return "KVDRILL_BOARD=" + std::to_string(board_fd) + "," + std::to_string(wake_fd);
}

std::vector<Event> Board::events(std::uint64_t from) const {
  const View& view = impl_->view;
  std::vector<Event> events;
  const std::uint64_t end = impl_->claimed();
  if (from < end) events.reserve(end - from);
  for (std::uint64_t sequence = from; sequence < end; ++sequence) {
    const EventSlot& slot = view.events[sequence];
    Event event;
    event.sequence = sequence;
    if (slot.stamp.load(std::memory_order_acquire) == 0) {
      if (!impl_->is_torn(sequence)) {
        if (slot.stamp.load(std::memory_order_acquire) == 0) break;
      } else {
        event.torn = true;
        events.push_back(event);
        continue;
      }
    }
    event.time_ns = slot.time_ns;
    event.kind = static_cast<EventKind>(slot.kind);
    event.process = slot.process;
    event.thread = slot.thread;
    event.name = view.name_of(slot.name);
    event.key = slot.key;
    event.value = slot.value;
    event.text = view.text_of(slot.text);
    events.push_back(event);
  }
  return events;
}

std::uint64_t Board::next_sequence() const {
  return impl_->claimed();
}

std::optional<std::string> Board::overflow() const {
  const View& view = impl_->view;
  const std::uint32_t full = view.head->overflow.load(std::memory_order_acquire);
  impl_->overflow_told = full;
  if (full == 0) return std::nullopt;
  std::string text;
  const auto add = [&text, full](std::uint32_t bit, const char* what, std::uint64_t capacity) {
    if ((full & bit) == 0) return;
    text += (text.empty() ? "the board is full: " : "; ") + std::string(what) + " (" +
            std::to_string(capacity) + ")";
  };
  add(kFullEvents, "events", view.event_capacity);
  add(kFullText, "bytes of text", view.text_capacity);
  add(kFullNames, "names", kMaxNames);
  add(kFullProcesses, "processes", kMaxProcesses);
  add(kFullThreads, "threads", view.thread_capacity);
  add(kFullOrders, "orders", view.order_capacity);
  return text;
}

std::vector<ProcessInfo> Board::processes() const {
  const View& view = impl_->view;
  std::vector<ProcessInfo> processes(view.processes());
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const ProcessSlot& slot = view.head->processes[i];
    if (slot.state.load(std::memory_order_acquire) == 0) continue;
    processes[i].name = view.name_of(slot.name);
    processes[i].pid = slot.pid;
    processes[i].forked = slot.forked != 0;
    processes[i].ready = slot.ready.load(std::memory_order_acquire) != kNotReady;
    processes[i].takes_clock = slot.clock.load(std::memory_order_acquire) != 0;
  }
  const std::uint32_t count = view.thread_count();
  for (std::uint32_t i = 0; i < count; ++i) {
    const ThreadSlot& slot = view.threads[i];
    if (slot.state.load(std::memory_order_acquire) == 0) continue;
    if (slot.process >= processes.size() || slot.index >= view.thread_capacity) continue;
    std::vector<ThreadInfo>& threads = processes[slot.process].threads;
    if (threads.size() <= slot.index) threads.resize(slot.index + 1);
    threads[slot.index].tid = slot.tid;
    threads[slot.index].label = view.text_of(unpack(slot.label.load(std::memory_order_acquire)));
  }
  return processes;
}

bool Board::is_mapped_by(pid_t pid) const {
  struct stat ours {};
  if (::fstat(impl_->board_fd, &ours) != 0) return true;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  bool told = false;
  // "FROM-TO rwxp OFFSET DEVICE INODE PATH"
  for (std::string line; std::getline(maps, line); told = true) {
    if (line.find("kvdrill-board") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string skipped;
    std::uint64_t inode = 0;
    for (int i = 0; i < 4; ++i) fields >> skipped;
    if (fields >> inode && inode == ours.st_ino) return true;
  }
  return !told;
}

void Board::process_ended(pid_t pid) {
  for (std::uint32_t i = 1; i < impl_->view.processes(); ++i) {
    ProcessSlot& slot = impl_->view.head->processes[i];
    if (slot.state.load(std::memory_order_acquire) != 0 && slot.pid == pid) {
      slot.ended.store(1, std::memory_order_relaxed);
    }
  }
}

bool Board::arm_wake(std::uint64_t from) {
  const View& view = impl_->view;
  // The exchange is the barrier between the token and the look; see wake_supervisor().
  view.head->armed.exchange(++impl_->token, std::memory_order_seq_cst);
  machine_fence();
  if ((view.head->overflow.load(std::memory_order_acquire) & ~impl_->overflow_told) != 0) {
    return true;
  }
  if (from >= impl_->claimed()) return false;
  return view.events[from].stamp.load(std::memory_order_acquire) != 0 || impl_->is_torn(from);
}

void Board::disarm_wake() {
  impl_->view.head->armed.store(0, std::memory_order_relaxed);
  std::uint64_t rung = 0;
  [[maybe_unused]] const auto read = ::read(impl_->view.wake_fd, &rung, sizeof rung);
}

void Board::record(std::string_view name, std::int64_t key, std::int64_t value,
                   std::string_view text) {
  const View& view = impl_->view;
  write_event(
      view, impl_->writer,
      {EventKind::kSupervisor, intern(view, name), key, value, put_text(view, text, kMaxAnswer)});
}

}  // namespace kv::drill
