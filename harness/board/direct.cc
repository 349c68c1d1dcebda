// The supervisor tells processes what to do: orders, commands, the end, the clock.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "harness/board/board.h"
#include "harness/board/board_impl.h"
#include "harness/board/futex.h"
#include "harness/board/layout.h"
#include "harness/board/proc_stat.h"
#include "harness/board/recorder.h"
#include "harness/board/session.h"

namespace kv::drill {
namespace {

constexpr std::string_view kDone = ".done";

void ring(ProcessSlot& process) {
  process.bell.fetch_add(1, std::memory_order_release);
  futex_wake_all(process.bell);
}

// Lets a frozen process go on. Its thread has said that it freezes and is about to: a SIGCONT that
// came before the stop would be lost, so the stop is awaited. The kernel reports it to a parent
// alone, and this may be a grandchild, so its state is read again until it is there; between the
// word and the stop lies one system call. A debugger can keep the stop to itself: hence the limit.
void thaw(pid_t pid, ThreadSlot& thread) {
  constexpr int kLooks = 2'000;
  const std::uint32_t stopping = thread.held_by.load(std::memory_order_acquire);
  const std::string path =
      "/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread.tid) + "/stat";
  for (int i = 0; i < kLooks; ++i) {
    const char state = state_in(path);
    if (state == '\0' || state == 'Z' || state == 'X') return;
    if (state == 'T') break;
    // Somebody else's SIGCONT may have come first.
    if (thread.held_by.load(std::memory_order_acquire) != stopping) return;
    futex_wait_for_ms(thread.held_by, stopping, 1);
  }
  ::kill(pid, SIGCONT);
}

// Whether the process has a handler for this signal: without one it would die of it.
bool catches(pid_t pid, int signal) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kCaught = "SigCgt:";
    if (!line.starts_with(kCaught)) continue;
    const std::uint64_t caught = std::strtoull(line.c_str() + kCaught.size(), nullptr, 16);
    return (caught >> (signal - 1) & 1) != 0;
  }
  return false;
}

}  // namespace

OrderSlot* Board::Impl::order(std::uint32_t id) const {
  return id == 0 || id > view.order_count() ? nullptr : &view.orders[id - 1];
}

ProcessSlot* Board::Impl::listener(std::string_view name) const {
  for (std::uint32_t i = view.processes(); i-- > 1;) {
    ProcessSlot& slot = view.head->processes[i];
    if (slot.state.load(std::memory_order_acquire) == 0 || slot.forked != 0) continue;
    if (slot.serving.load(std::memory_order_acquire) == 0) continue;
    if (view.name_of(slot.name) == name && slot.ended.load(std::memory_order_relaxed) == 0) {
      return &slot;
    }
  }
  return nullptr;
}

void Board::Impl::close_order(std::uint32_t id) {
  OrderSlot* slot = order(id);
  if (slot == nullptr) return;
  slot->acted.fetch_or(kClosed, std::memory_order_acq_rel);
  std::uint32_t open = view.head->orders_open.load(std::memory_order_relaxed);
  while (open < view.order_count() &&
         (view.orders[open].acted.load(std::memory_order_relaxed) & kClosed) != 0) {
    ++open;
  }
  view.head->orders_open.store(open, std::memory_order_relaxed);
  view.head->order_generation.fetch_add(1, std::memory_order_release);
}

std::uint32_t Board::give(const Order& order) {
  const View& view = impl_->view;
  Layout& head = *view.head;
  const std::uint32_t index = head.orders_used.load(std::memory_order_relaxed);
  if (index >= view.order_capacity) {
    set_overflow(view, kFullOrders);
    return 0;
  }
  std::string_view site = order.site;
  const bool done = site.size() > kDone.size() && site.substr(site.size() - kDone.size()) == kDone;
  if (done) site.remove_suffix(kDone.size());
  OrderSlot& slot = view.orders[index];
  slot.action = static_cast<std::uint32_t>(order.action);
  slot.site = intern(view, site);
  slot.done = done ? 1 : 0;
  slot.process = intern(view, order.process);
  slot.has_key = order.key.has_value() ? 1 : 0;
  slot.key = order.key.value_or(0);
  slot.first_hit = order.first_hit;
  slot.times = order.times;
  slot.code = order.code;
  slot.thread = put_text(view, order.thread, kMaxNote);
  slot.command = intern(view, order.command);
  slot.call_id = order.call_id;
  slot.arguments = put_text(view, order.arguments, kMaxAnswer);
  slot.call_name =
      put_text(view, order.call_name.empty() ? order.command : order.call_name, kMaxNote);
  slot.given.store(1, std::memory_order_release);
  head.orders_used.store(index + 1, std::memory_order_release);
  head.order_generation.fetch_add(1, std::memory_order_release);
  return index + 1;
}

void Board::release(std::uint32_t order) {
  const View& view = impl_->view;
  OrderSlot* slot = impl_->order(order);
  if (slot == nullptr) return;
  impl_->close_order(order);
  slot->released.exchange(1, std::memory_order_seq_cst);
  machine_fence();
  futex_wake_all(slot->released);
  if (static_cast<Action>(slot->action) != Action::kFreeze) return;
  for (std::uint32_t i = 0; i < view.thread_count(); ++i) {
    ThreadSlot& thread = view.threads[i];
    std::uint32_t held_by = order;
    // Taken back before it stopped, or somebody else's: nothing to do.
    if (thread.held_by.compare_exchange_strong(held_by, 0, std::memory_order_acq_rel)) continue;
    if (held_by != (order | kStopping) || impl_->is_gone(thread.process)) continue;
    thaw(view.head->processes[thread.process].pid, thread);
  }
}

void Board::withdraw(std::uint32_t order) {
  impl_->close_order(order);
}

OrderState Board::state(std::uint32_t order) const {
  const View& view = impl_->view;
  OrderState state;
  const OrderSlot* slot = impl_->order(order);
  if (slot == nullptr) return state;
  state.acted = slot->acted.load(std::memory_order_acquire) & ~kClosed;
  for (std::uint32_t i = 0; i < view.thread_count(); ++i) {
    const ThreadSlot& thread = view.threads[i];
    if ((thread.held_by.load(std::memory_order_acquire) & ~kStopping) != order) continue;
    if (!impl_->is_gone(thread.process)) ++state.holding;
  }
  return state;
}

void Board::release_all() {
  for (std::uint32_t id = 1; id <= impl_->view.order_count(); ++id) release(id);
}

bool Board::call(std::string_view process, std::string_view command, std::string_view arguments,
                 std::string_view call_name, std::uint32_t call_id) {
  const View& view = impl_->view;
  ProcessSlot* slot = impl_->listener(process);
  if (slot == nullptr) return false;
  const std::uint32_t head = slot->head.load(std::memory_order_relaxed);
  if (head - slot->tail.load(std::memory_order_acquire) >= kMailboxSlots) return false;
  slot->mail[head % kMailboxSlots] = {call_id, intern(view, command),
                                      put_text(view, arguments, kMaxAnswer),
                                      put_text(view, call_name, kMaxNote)};
  slot->head.store(head + 1, std::memory_order_release);
  ring(*slot);
  return true;
}

bool Board::tell_exit(std::string_view process, std::string_view how, int code) {
  std::uint32_t way = kExitNone;
  if (how == "return") way = kExitReturn;
  if (how == "exit") way = kExitExit;
  if (how == "_exit") way = kExitUnder;
  if (how == "abort") way = kExitAbort;
  if (how == "quick_exit") way = kExitQuick;
  ProcessSlot* slot = impl_->listener(process);
  if (slot == nullptr || way == kExitNone) return false;
  slot->exit_code = code;
  slot->exit_how.store(way, std::memory_order_release);
  futex_wake_all(slot->exit_how);
  return true;
}

void Board::admit(std::uint16_t process) {
  if (process >= impl_->view.processes()) return;
  std::atomic<std::uint32_t>& ready = impl_->view.head->processes[process].ready;
  ready.store(kReadySeen, std::memory_order_release);
  futex_wake_all(ready);
}

void Board::set_clock(std::int64_t now_ns) {
  Layout& head = *impl_->view.head;
  head.clock_ns.store(std::max(now_ns, head.clock_ns.load(std::memory_order_relaxed)),
                      std::memory_order_release);
  head.clock_moves.fetch_add(1, std::memory_order_release);
  for (std::uint32_t i = 1; i < impl_->view.processes(); ++i) ring(head.processes[i]);
}

std::int64_t Board::clock_now() const {
  return impl_->view.head->manual_clock != 0
             ? impl_->view.head->clock_ns.load(std::memory_order_relaxed)
             : monotonic_ns();
}

bool Board::dump_stack(pid_t pid, pid_t tid) {
  const View& view = impl_->view;
  for (std::uint32_t i = view.processes(); i-- > 1;) {
    const ProcessSlot& slot = view.head->processes[i];
    if (slot.state.load(std::memory_order_acquire) == 0 || slot.pid != pid) continue;
    if (slot.ended.load(std::memory_order_relaxed) != 0) continue;
    // It may have had a handler and have none any more: an exec takes them all away.
    if (slot.stacks.load(std::memory_order_acquire) == 0) return false;
    if (!catches(pid, stack_signal())) return false;
    return ::syscall(SYS_tgkill, pid, tid, stack_signal()) == 0;
  }
  return false;
}

}  // namespace kv::drill
