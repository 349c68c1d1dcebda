// A process joins the board that it inherited, and its forked children join again.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/sanitizer.h"
#include "harness/board/session.h"

namespace kv::drill {

constinit Session session;

namespace {

// Guards attaching and registering; held across fork(), so that the child finds it free.
std::mutex attach_mutex;  // NOLINT: trivially destructible in practice, and never destroyed early
bool tried = false;       // the environment was looked at
std::uint32_t forks = 0;  // of this process, for the names of its children
// By the ids of names: which have been listed.
std::array<std::atomic<bool>, kMaxNames + 1> listed{};

struct Environment {
  std::string_view board;    // the variable, for messages
  std::string_view process;  // empty: none given
};

// The only place that reads the environment.
bool read_environment(Environment* environment) {
  const char* text = std::getenv("KVDRILL_BOARD");  // NOLINT: before other threads, by contract
  if (text == nullptr) return false;
  environment->board = text;
  const char* name = std::getenv("KVDRILL_PROCESS");  // NOLINT: as above
  environment->process = name == nullptr ? "" : name;
  return true;
}

bool parse(std::string_view text, int* board_fd, int* wake_fd) {
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, *board_fd);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ',') return false;
  const auto second = std::from_chars(first.ptr + 1, end, *wake_fd);
  return second.ec == std::errc() && second.ptr == end && *board_fd >= 0 && *wake_fd >= 0;
}

// What is wrong with the descriptor as a board; empty when nothing is.
std::string check_board(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return std::string("the board: ") + std::strerror(errno);
  Prologue first{};
  if (::pread(fd, &first, sizeof first, 0) != static_cast<ssize_t>(sizeof first) ||
      first.magic != kBoardMagic) {
    return "descriptor " + std::to_string(fd) + " is not a board";
  }
  if (first.version != kBoardVersion) {
    return "the board has version " + std::to_string(first.version) + ", expected " +
           std::to_string(kBoardVersion) + " (program and kvdrill are of different builds)";
  }
  if (static_cast<std::uint64_t>(file.st_size) != first.bytes) {
    return "the board has " + std::to_string(file.st_size) + " bytes, expected " +
           std::to_string(first.bytes);
  }
  return {};
}

const View* map_board(std::string_view variable) {
  int board_fd = -1;
  int wake_fd = -1;
  std::string wrong;
  if (!parse(variable, &board_fd, &wake_fd)) {
    wrong = "expected \"<board fd>,<wake fd>\"";
  } else {
    wrong = check_board(board_fd);
    if (wrong.empty() && ::fcntl(wake_fd, F_GETFD) < 0) {
      wrong = std::string("the wake descriptor: ") + std::strerror(errno);
    }
  }
  void* mapping = MAP_FAILED;
  if (wrong.empty()) {
    struct stat file {};
    ::fstat(board_fd, &file);
    mapping = ::mmap(nullptr, static_cast<std::size_t>(file.st_size), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_POPULATE, board_fd, 0);
    if (mapping == MAP_FAILED) wrong = std::string("mapping the board: ") + std::strerror(errno);
  }
  if (!wrong.empty()) {
    complain("KVDRILL_BOARD=\"" + std::string(variable) + "\": " + wrong +
             "; going on as if it were absent");
    return nullptr;
  }
  return new View(mapping, wake_fd);
}

bool name_taken_by(const View& view, std::uint32_t name, pid_t pid) {
  for (std::uint32_t i = 0; i < view.processes(); ++i) {
    const ProcessSlot& slot = view.head->processes[i];
    if (slot.state.load(std::memory_order_acquire) == 0 || slot.name != name) continue;
    if (pid == 0 || slot.pid == pid) return true;
  }
  return false;
}

// The name given by the drill; a process that inherited it from its parent is "<name>.child-<n>".
std::uint32_t name_process(const View& view, std::string_view given) {
  const std::string base(given.empty() ? "process" : given);
  std::uint32_t name = intern(view, base);
  if (!name_taken_by(view, name, ::getppid())) return name;
  for (int n = 1; name != 0 && name_taken_by(view, name, 0); ++n) {
    name = intern(view, base + ".child-" + std::to_string(n));
  }
  return name;
}

void register_process(const View& view, std::uint32_t name, bool forked) {
  const auto at = claim_entry(view, view.head->processes_used, kMaxProcesses, kFullProcesses);
  if (!at) return;
  ProcessSlot& slot = view.head->processes[*at];
  slot.pid = ::getpid();
  slot.name = name;
  slot.forked = forked ? 1 : 0;
  slot.state.store(1, std::memory_order_release);
  session.name.store(name, std::memory_order_relaxed);
  session.process.store(*at, std::memory_order_release);
}

void before_fork() {
  attach_mutex.lock();
}
void after_fork_in_parent() {
  ++forks;
  attach_mutex.unlock();
}
void after_fork_in_child() {
  ++forks;
  if (board() != nullptr) {
    session.process.store(kUnregistered, std::memory_order_relaxed);
    forget_thread();
  }
  attach_mutex.unlock();
}

// Maps the board and registers this process, once. The caller holds attach_mutex.
const View* join() {
  if (tried) return board();
  tried = true;
  Environment environment;
  if (!read_environment(&environment)) return nullptr;
  const View* view = map_board(environment.board);
  if (view == nullptr) return nullptr;
  if (!prepare_threads() ||
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
    complain("no thread-specific key or memory left; going on as if KVDRILL_BOARD were absent");
    return nullptr;
  }
  session.process.store(kUnregistered, std::memory_order_relaxed);
  const std::uint32_t name = name_process(*view, environment.process);
  if (name == 0) return nullptr;  // an overflow: the drill knows
  register_process(*view, name, false);
  if (session.process.load(std::memory_order_relaxed) == kUnregistered) return nullptr;
  session.label_note = intern(*view, "thread.label");
  session.view.store(view, std::memory_order_release);
  report_registered(*view);
  return view;
}

const kvdrill_hooks hooks = {KVDRILL_CONTRACT_VERSION,
                             kvdrill_point,
                             kvdrill_fault,
                             kvdrill_step,
                             kvdrill_done,
                             kvdrill_note};

}  // namespace

void complain(std::string_view text) {
  const std::string line = "kvdrill: " + std::string(text) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

void name_sites(const View& view, kvdrill_site* first) {
  for (kvdrill_site* site = first; site != nullptr; site = site->next) {
    const std::uint32_t id = intern(view, site->name);
    listed[id].store(true, std::memory_order_relaxed);
    __atomic_store_n(&site->harness_id, id, __ATOMIC_RELAXED);
  }
}

bool is_listed(std::uint32_t id) {
  return listed[id].load(std::memory_order_relaxed);
}

bool register_child(const View& view) {
  const std::lock_guard<std::mutex> lock(attach_mutex);
  if (session.process.load(std::memory_order_relaxed) != kUnregistered) return false;
  const std::uint32_t parent = session.name.load(std::memory_order_relaxed);
  const std::string name = std::string(view.name_of(parent)) + ".fork-" + std::to_string(forks);
  forks = 0;
  const std::uint32_t id = intern(view, name);
  if (id != 0) register_process(view, id, true);
  if (session.process.load(std::memory_order_relaxed) == kUnregistered) return false;
  // Handlers are inherited.
  if (session.stacks) own_process(view).stacks.store(1, std::memory_order_release);
  return true;
}

void report_registered(const View& view) {
  const std::uint32_t name = session.name.load(std::memory_order_relaxed);
  const std::uint64_t text = view.head->names[name - 1].load(std::memory_order_acquire);
  record(view, {EventKind::kRegistered, 0, 0, ::getpid(), unpack(text)});
}

}  // namespace kv::drill

const kvdrill_hooks* kvdrill_attach(const kvdrill_engine* engine) {
  using namespace kv::drill;  // NOLINT: the body belongs to it
  if (engine == nullptr || engine->version != KVDRILL_CONTRACT_VERSION) {
    complain("kvdrill_attach: expected an engine of contract version " +
             std::to_string(KVDRILL_CONTRACT_VERSION) +
             (engine == nullptr ? ", got null" : ", got " + std::to_string(engine->version)));
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(attach_mutex);
  const View* view = join();
  if (view == nullptr) return nullptr;
  if (session.engine.load(std::memory_order_relaxed) != nullptr) return &hooks;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &session.signals);
  name_sites(*view, engine->sites);
  session.engine.store(engine, std::memory_order_release);
  prepare_frames();
  if ((engine->flags & KVDRILL_NO_CRASH_HANDLER) == 0) install_crash_handler();
  session.stacks = install_stack_handler();
  if (session.stacks) own_process(*view).stacks.store(1, std::memory_order_release);
  if (!start_commands(*view)) complain("cannot start the command thread: no command will run");
  // The threads of a sanitizer's runtime are no part of the engine: a drill that asks whether
  // anybody can still move must not count them.
  if (kRaceDetector) label_other_threads(*view, "runtime");
  return &hooks;
}

int kvdrill_attached(void) {
  return kv::drill::board() != nullptr ? 1 : 0;
}

void kvdrill_add_sites(kvdrill_site* first) {
  using namespace kv::drill;  // NOLINT: the body belongs to it
  const std::lock_guard<std::mutex> lock(attach_mutex);
  keep_sites(first);
  if (const View* view = join()) name_sites(*view, first);
}
