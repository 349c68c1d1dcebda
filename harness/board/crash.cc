// Last words: the frames of a thread that crashed, or that the supervisor asks about.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "harness/board/board.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/sanitizer.h"
#include "harness/board/session.h"

namespace kv::drill {
namespace {

constexpr std::array<int, 5> kCrashSignals = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
// What was there before: the default action, or a sanitizer's or the engine's own handler, which
// gets its turn afterwards.
std::array<struct sigaction, kCrashSignals.size()> before;

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kFramesBytes = 6 * 1024;

pid_t own_tid() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

// The thread as a writer at signal level. A thread that never met the board gets a slot, and its
// registration takes it over later.
bool writer_in_handler(const View& view, Writer* writer) {
  if (this_thread.state != nullptr) {
    *writer = this_thread.state->writer;
    writer->level = 1;
    return true;
  }
  ThreadSlot* slot = this_thread.early;
  const bool known = slot != nullptr;
  if (!known) {
    const std::uint32_t process = session.process.load(std::memory_order_acquire);
    if (process == kUnregistered) return false;
    const pid_t tid = own_tid();
    slot = claim_thread(view, process, tid, tid == ::getpid() ? "main" : "");
    if (slot == nullptr) return false;
    this_thread.early = slot;
  }
  *writer = {slot, static_cast<std::uint16_t>(slot->process),
             static_cast<std::uint16_t>(slot->index), 1};
  if (!known) {
    write_event(
        view, *writer,
        {EventKind::kThread, 0, 0, slot->tid, unpack(slot->label.load(std::memory_order_relaxed))});
  }
  return true;
}

void report_frames(EventKind kind, std::int64_t value, const void* context) {
  const View* view = board();
  Writer writer;
  if (view == nullptr || !writer_in_handler(*view, &writer)) return;
  char frames[kFramesBytes];
  const std::size_t length = write_frames(context, frames, sizeof frames);
  write_event(*view, writer, {kind, 0, 0, value, put_text(*view, {frames, length}, kFramesBytes)});
}

// A fault of the thread's own happens again when the handler returns, a signal that was sent is
// sent once more: either way the process ends as if this handler had never been there.
void on_crash(int signal, siginfo_t* info, void* context) {
  if (!this_thread.crashing) {
    this_thread.crashing = true;
    report_frames(EventKind::kCrash, signal, context);
  }
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (kCrashSignals[i] == signal) ::sigaction(signal, &before[i], nullptr);
  }
  this_thread.crashing = false;
  if (info->si_code <= 0) ::syscall(SYS_tgkill, ::getpid(), own_tid(), signal);
}

void on_stack_signal(int, siginfo_t*, void* context) {
  const int saved = errno;
  report_frames(EventKind::kStack, 0, context);
  errno = saved;
}

}  // namespace

int stack_signal() {
  return SIGRTMIN + 6;
}

void install_crash_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, stack_signal());
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    ::sigaction(kCrashSignals[i], &action, &before[i]);
  }
}

bool install_stack_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_stack_signal;
  // Restarted system calls would never come back to a race detector that has kept the signal.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (kRaceDetector ? 0 : SA_RESTART);
  sigemptyset(&action.sa_mask);
  return ::sigaction(stack_signal(), &action, nullptr) == 0;
}

void* give_alternate_stack() {
  stack_t present{};
  if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return nullptr;
  void* memory = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::mprotect(memory, kGuardBytes, PROT_NONE);
  stack_t own{};
  own.ss_sp = static_cast<char*>(memory) + kGuardBytes;
  own.ss_size = kStackBytes;
  if (::sigaltstack(&own, nullptr) == 0) return memory;
  ::munmap(memory, kGuardBytes + kStackBytes);
  return nullptr;
}

void take_alternate_stack(void* memory) {
  if (memory == nullptr) return;
  stack_t present{};
  const void* own = static_cast<char*>(memory) + kGuardBytes;
  if (::sigaltstack(nullptr, &present) == 0 && present.ss_sp == own) {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
  }
  ::munmap(memory, kGuardBytes + kStackBytes);
}

}  // namespace kv::drill
