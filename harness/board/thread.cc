// Threads get to know the board: lazily, at their first event, and leave it when they end.
#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string_view>

#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/session.h"

namespace kv::drill {

constinit thread_local ThreadLocal this_thread __attribute__((tls_model("initial-exec")));

namespace {

pthread_key_t state_key;

pid_t own_tid() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void free_state(ThreadState* state) {
  std::free(state->hits);
  delete state;
}

// Destructors of other keys may still reach points, so this one lets itself be called again as long
// as there are rounds, and the state ends in the last.
void thread_ends(void* pointer) {
  auto* state = static_cast<ThreadState*>(pointer);
  if (++state->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    if (::pthread_setspecific(state_key, state) == 0) return;
  }
  take_alternate_stack(state->alternate_stack);
  this_thread.state = nullptr;
  free_state(state);
}

ThreadState* new_state() {
  auto* state = new (std::nothrow) ThreadState;
  if (state == nullptr) return nullptr;
  state->hits = static_cast<Hits*>(std::calloc(kMaxNames + 1, sizeof(Hits)));
  if (state->hits == nullptr || ::pthread_setspecific(state_key, state) != 0) {
    free_state(state);
    return nullptr;
  }
  state->alternate_stack = give_alternate_stack();
  return state;
}

// `joined` becomes true when the thread was the first of a forked child.
ThreadSlot* new_slot(const View& view, std::string_view label, bool* joined) {
  if (session.process.load(std::memory_order_acquire) == kUnregistered) {
    *joined = register_child(view);
  }
  const std::uint32_t process = session.process.load(std::memory_order_acquire);
  if (process == kUnregistered) return nullptr;
  const pid_t tid = own_tid();
  if (label.empty() && tid == ::getpid()) label = "main";
  return claim_thread(view, process, tid, label);
}

Draft thread_event(const ThreadSlot& slot) {
  return {EventKind::kThread, 0, 0, slot.tid, unpack(slot.label.load(std::memory_order_relaxed))};
}

}  // namespace

bool prepare_threads() {
  return ::pthread_key_create(&state_key, thread_ends) == 0;
}

void forget_thread() {
  // The state itself is kept by its key, and used again by register_thread().
  this_thread = {};
}

ThreadState* register_thread(const View& view, std::string_view label) {
  const int saved = errno;
  ThreadSlot* slot = this_thread.early;
  bool joined = false;
  if (slot == nullptr) slot = new_slot(view, label, &joined);
  ThreadState* state = nullptr;
  if (slot != nullptr) {
    state = static_cast<ThreadState*>(::pthread_getspecific(state_key));
    if (state == nullptr) {
      state = new_state();
    } else {
      std::fill_n(state->hits, kMaxNames + 1, Hits{});
      state->running = false;
    }
  }
  if (state != nullptr) {
    state->slot = slot;
    state->writer = {slot, static_cast<std::uint16_t>(slot->process),
                     static_cast<std::uint16_t>(slot->index), 0};
    this_thread.state = state;
    write_event(view, state->writer, thread_event(*slot));
    if (joined) report_registered(view);
  }
  errno = saved;
  return state;
}

void set_label(const View& view, std::string_view label) {
  if (label.empty()) return;
  ThreadState* state = this_thread.state;
  if (state == nullptr && this_thread.early == nullptr) {
    register_thread(view, label);
    return;
  }
  state = here(view);
  if (state == nullptr) return;
  state->slot->label.store(pack(put_known_text(view, *state, label.substr(0, 200))),
                           std::memory_order_release);
  write_event(view, state->writer, thread_event(*state->slot));
}

void label_other_threads(const View& view, std::string_view label) {
  DIR* tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return;
  const std::uint32_t process = session.process.load(std::memory_order_relaxed);
  while (const dirent* entry = ::readdir(tasks)) {  // NOLINT: the stream is this function's own
    const auto tid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (tid <= 0) continue;
    bool known = false;
    for (std::uint32_t i = 0; i < view.thread_count() && !known; ++i) {
      known = view.threads[i].state.load(std::memory_order_acquire) != 0 &&
              view.threads[i].process == process && view.threads[i].tid == tid;
    }
    if (known) continue;
    if (ThreadSlot* slot = claim_thread(view, process, tid, label)) {
      record(view, thread_event(*slot));
    }
  }
  ::closedir(tasks);
}

}  // namespace kv::drill

void kvdrill_thread(const char* label) {
  if (const kv::drill::View* view = kv::drill::board()) {
    kv::drill::set_label(*view, label == nullptr ? "" : label);
  }
}
