// Orders, on the side of the thread that meets them. An order is matched by the ids of its names
// and, rarely, by the text of a thread's label; it acts exactly as often as it was allowed to, also
// when several threads meet it at once, because every act is claimed in its counter first.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "harness/board/board.h"
#include "harness/board/futex.h"
#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/session.h"

namespace kv::drill {
namespace {

bool closed(const OrderSlot& order) {
  return (order.acted.load(std::memory_order_relaxed) & kClosed) != 0;
}

bool can_act(const OrderSlot& order, const Reached& at) {
  switch (static_cast<Action>(order.action)) {
    case Action::kFail:
    case Action::kPretend:
      return at.role == KVDRILL_FAULT;
    case Action::kSkip:
      return at.role == KVDRILL_STEP;
    default:
      return true;
  }
}

// The hits first_hit, first_hit + 1, ... of each thread, as many as it may act on.
bool hit_matches(const OrderSlot& order, std::uint64_t hit) {
  if (order.first_hit == 0) return true;
  if (hit < order.first_hit) return false;
  return order.times == 0 || hit - order.first_hit < order.times;
}

bool matches(const View& view, const ThreadState& thread, const OrderSlot& order,
             const Reached& at) {
  if (order.given.load(std::memory_order_acquire) == 0 || order.site != at.id) return false;
  if ((order.done != 0) != (at.moment == kAtDone) || closed(order)) return false;
  if (order.process != 0 && order.process != session.name.load(std::memory_order_relaxed))
    return false;
  if (order.has_key != 0 && order.key != at.key) return false;
  if (!hit_matches(order, at.hit) || !can_act(order, at)) return false;
  return order.thread.length == 0 ||
         view.text_of(order.thread) ==
             view.text_of(unpack(thread.slot->label.load(std::memory_order_relaxed)));
}

// True when this act is the caller's; false when the order has acted as often as it may, or ended.
bool claim_act(OrderSlot& order) {
  std::uint64_t acted = order.acted.load(std::memory_order_relaxed);
  do {
    if ((acted & kClosed) != 0 || (order.times != 0 && acted >= order.times)) return false;
  } while (!order.acted.compare_exchange_weak(acted, acted + 1, std::memory_order_relaxed));
  return true;
}

void hold(OrderSlot& order) {
  while (order.released.load(std::memory_order_acquire) == 0) futex_wait(order.released, 0);
}

// To this very thread: a signal to the process may be taken by another thread, while this one goes
// on. SIGSTOP then stops the whole process before the call returns.
void raise_here(int signal) {
  ::syscall(SYS_tgkill, ::getpid(), static_cast<pid_t>(::syscall(SYS_gettid)), signal);
}

void crash(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise_here(signal);
}

class Obedience {
 public:
  Obedience(const View& view, ThreadState& thread, const Reached& at)
      : view_(view), thread_(thread), at_(at) {}

  void act(std::uint32_t index, Outcome& outcome) {
    OrderSlot& order = view_.orders[index];
    const std::uint32_t id = index + 1;
    const auto action = static_cast<Action>(order.action);
    const bool stands = action == Action::kHold || action == Action::kFreeze;
    if (stands) thread_.slot->held_by.store(id, std::memory_order_release);
    report(EventKind::kActed, id, view_.head->action_names[order.action % kActions]);
    switch (action) {
      case Action::kHold:
        hold(order);
        break;
      case Action::kFail:
        outcome.code = static_cast<std::int32_t>(order.code);
        break;
      case Action::kPretend:
        outcome.code = KVDRILL_PRETEND;
        break;
      case Action::kSkip:
        outcome.skip = true;
        break;
      case Action::kCrash:
        crash(static_cast<int>(order.code));
        break;
      case Action::kFreeze:
        freeze(order, id);
        break;
      case Action::kRun:
        run(order);
        break;
    }
    if (stands) {
      thread_.slot->held_by.store(0, std::memory_order_release);
      report(EventKind::kReleased, id, {});
    }
  }

 private:
  void report(EventKind kind, std::uint32_t id, TextRef text) {
    write_event(view_, thread_.writer, {kind, at_.id, at_.key, id, text});
  }

  // A release may come at any time. Before the exchange it keeps the thread from stopping (it has
  // set `released`, or takes the thread back in held_by); after it, it waits for the stop and ends
  // it. Between the store to held_by and the look at `released` lies the barrier of an event.
  void freeze(const OrderSlot& order, std::uint32_t id) {
    std::uint32_t mine = id;
    if (order.released.load(std::memory_order_acquire) == 0 &&
        thread_.slot->held_by.compare_exchange_strong(mine, id | kStopping,
                                                      std::memory_order_acq_rel)) {
      raise_here(SIGSTOP);
    }
  }

  void run(const OrderSlot& order) {
    thread_.running = true;
    run_command(view_, {order.command, view_.text_of(order.arguments),
                        view_.text_of(order.call_name), order.call_id, false});
    thread_.running = false;
  }

  const View& view_;
  ThreadState& thread_;
  const Reached& at_;
};

}  // namespace

std::uint32_t refresh_orders(const View& view, kvdrill_site* site, std::uint32_t id) {
  const std::uint32_t generation = view.head->order_generation.load(std::memory_order_acquire);
  std::uint64_t word = std::uint64_t{generation} << 2;
  const std::uint32_t count = view.order_count();
  for (std::uint32_t i = view.head->orders_open.load(std::memory_order_relaxed); i < count; ++i) {
    const OrderSlot& order = view.orders[i];
    if (order.given.load(std::memory_order_acquire) == 0 || order.site != id) continue;
    if (!closed(order)) word |= order.done != 0 ? kAtDone : kAtReach;
  }
  __atomic_store_n(&site->harness_data, reinterpret_cast<void*>(word), __ATOMIC_RELAXED);
  return static_cast<std::uint32_t>(word & (kAtDone | kAtReach));
}

Claims claim_orders(const View& view, const ThreadState& thread, const Reached& at) {
  Claims claims;
  bool fails = false;
  bool skips = false;
  const std::uint32_t count = view.order_count();
  for (std::uint32_t i = view.head->orders_open.load(std::memory_order_relaxed);
       i < count && claims.count < claims.orders.size(); ++i) {
    OrderSlot& order = view.orders[i];
    if (!matches(view, thread, order, at)) continue;
    const auto action = static_cast<Action>(order.action);
    // The command may reach the point that runs it: commands are not run within each other.
    if (action == Action::kRun && thread.running) continue;
    // One failure or one omission is all that a hit can have; a further order keeps its turn.
    const bool answers = action == Action::kFail || action == Action::kPretend;
    if ((answers && fails) || (action == Action::kSkip && skips)) continue;
    if (!claim_act(order)) continue;
    fails = fails || answers;
    skips = skips || action == Action::kSkip;
    claims.orders[claims.count++] = i;
  }
  return claims;
}

Outcome obey(const View& view, ThreadState& thread, const Reached& at, const Claims& claims) {
  const int saved = errno;
  Outcome outcome;
  Obedience obedience(view, thread, at);
  for (std::uint32_t i = 0; i < claims.count; ++i) obedience.act(claims.orders[i], outcome);
  errno = saved;
  return outcome;
}

}  // namespace kv::drill
