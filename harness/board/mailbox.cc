// Commands, the end and the clock: what the supervisor tells a process, and the thread that hears
// it.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "harness/board/board.h"
#include "harness/board/futex.h"
#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/session.h"

struct kvdrill_reply {
  std::string text = "ok";
  bool error = false;
};

namespace kv::drill {
namespace {

// Futex word: the command thread is registered.
std::atomic<std::uint32_t> started{0};
// What the drill has waited for is over before what it asks for next: ready before every call, the
// return of one call before the next. The order is real, but it leads through the supervisor, where
// a race detector does not see it; this counter shows it. Nothing else of a drill is shown: engines
// have no supervisor that orders their points.
std::atomic<std::uint32_t> finished{0};
// A callback was set after the clock had been moved: it has to hear of that once.
std::atomic<bool> clock_is_news{false};

struct Call {
  std::uint32_t command;
  std::uint32_t id;
  std::string arguments, name;
};

void unknown_command(std::string_view name, kvdrill_reply* reply) {
  reply->error = true;
  reply->text = "unknown command \"" + std::string(name) + "\"; this process has";
  const kvdrill_engine* engine = session.engine.load(std::memory_order_acquire);
  const kvdrill_command* command = engine == nullptr ? nullptr : engine->commands;
  if (command == nullptr || command->name == nullptr) reply->text += " none";
  for (const char* comma = " "; command != nullptr && command->name != nullptr; ++command) {
    reply->text += std::exchange(comma, ", ");
    reply->text += command->name;
  }
}

const kvdrill_command* find_command(std::string_view name) {
  const kvdrill_engine* engine = session.engine.load(std::memory_order_acquire);
  if (engine == nullptr || engine->commands == nullptr) return nullptr;
  for (const kvdrill_command* command = engine->commands; command->name != nullptr; ++command) {
    if (command->name == name) return command;
  }
  return nullptr;
}

void* call_thread(void* pointer) {
  const std::unique_ptr<Call> call(static_cast<Call*>(pointer));
  const View& view = *board();
  // Registered first: the thread of a call has its label in its very first event.
  register_thread(view, call->name);
  ::pthread_sigmask(SIG_SETMASK, &session.signals, nullptr);
  run_command(view, {call->command, call->arguments, call->name, call->id, true});
  return nullptr;
}

// Starts a detached thread; 0, or the error number.
int start_thread(void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  int error = ::pthread_attr_init(&attributes);
  if (error != 0) return error;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  error = ::pthread_create(&thread, &attributes, body, argument);
  ::pthread_attr_destroy(&attributes);
  return error;
}

void start_call(const View& view, const MailSlot& mail) {
  auto call = std::make_unique<Call>(Call{mail.command, mail.call_id,
                                          std::string(view.text_of(mail.arguments)),
                                          std::string(view.text_of(mail.call_name))});
  const int error = start_thread(call_thread, call.get());
  if (error == 0) {
    static_cast<void>(call.release());  // NOLINT: the thread owns it now
    return;
  }
  const std::string why = std::string("cannot start a thread: ") + std::strerror(error);
  record(view, {EventKind::kCall, mail.command, 0, mail.call_id, mail.call_name});
  record(view,
         {EventKind::kReturn, mail.command, 1, mail.call_id, put_text(view, why, kMaxAnswer)});
}

bool take_mail(const View& view, ProcessSlot& own) {
  const std::uint32_t tail = own.tail.load(std::memory_order_relaxed);
  if (tail == own.head.load(std::memory_order_acquire)) return false;
  start_call(view, own.mail[tail % kMailboxSlots]);
  own.tail.store(tail + 1, std::memory_order_release);
  return true;
}

bool take_clock(const View& view, std::uint32_t* seen) {
  const std::uint32_t moves = view.head->clock_moves.load(std::memory_order_acquire);
  const bool news = clock_is_news.exchange(false, std::memory_order_acquire) && moves != 0;
  if (moves == *seen && !news) return false;
  const std::int64_t now = view.head->clock_ns.load(std::memory_order_acquire);
  const Session::Clock* clock = session.clock.load(std::memory_order_acquire);
  if (clock != nullptr && clock->moved != nullptr) clock->moved(clock->user, now);
  if (moves != std::exchange(*seen, moves)) record(view, {EventKind::kClock, 0, 0, now, {}});
  return true;
}

// Makes the board and the command thread know of the callback that is set.
void tell_clock(const View& view, ProcessSlot& own) {
  const Session::Clock* clock = session.clock.load(std::memory_order_acquire);
  if (clock == nullptr || view.head->manual_clock == 0) return;
  own.clock.store(clock->moved == nullptr ? 0 : 1, std::memory_order_release);
  // A move that came between the caller's kvdrill_now() and this one would be lost otherwise.
  clock_is_news.store(true, std::memory_order_release);
  own.bell.fetch_add(1, std::memory_order_release);
  futex_wake_all(own.bell);
}

void* command_thread(void*) {
  const View& view = *board();
  register_thread(view, "kvdrill.commands");
  ProcessSlot& own = own_process(view);
  own.serving.store(1, std::memory_order_release);
  started.store(1, std::memory_order_release);
  futex_wake_all(started);
  std::uint32_t clock_seen = 0;
  for (;;) {
    const std::uint32_t bell = own.bell.load(std::memory_order_acquire);
    const bool moved = take_clock(view, &clock_seen);
    const bool mail = take_mail(view, own);
    if (!moved && !mail) futex_wait(own.bell, bell);
  }
  return nullptr;
}

// Signals for the process are for the engine's own threads, never for the drill's. What this thread
// can cause itself, and the question for its stack, it takes.
void block_for_command_thread(sigset_t* blocked) {
  sigfillset(blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(blocked, own);
  }
  sigdelset(blocked, stack_signal());
}

[[noreturn]] void end_without_return(std::uint32_t how, int code) {
  switch (how) {
    case kExitExit:
      std::exit(code);  // NOLINT: the drill asked for it
    case kExitQuick:
      std::quick_exit(code);
    case kExitAbort:
      std::abort();
    default:
      ::_exit(code);
  }
}

}  // namespace

void run_command(const View& view, const Command& command) {
  const std::string name(view.name_of(command.name));
  record(view, {EventKind::kCall, command.name, 0, command.call_id,
                put_text(view, command.call_name, kMaxNote)});
  if (command.by_call) static_cast<void>(finished.load(std::memory_order_acquire));
  kvdrill_reply reply;
  if (const kvdrill_command* found = find_command(name)) {
    const std::string json(command.arguments.empty() ? "{}" : command.arguments);
    try {
      found->run(session.engine.load(std::memory_order_acquire)->engine, json.c_str(), &reply);
    } catch (const std::exception& thrown) {
      reply.error = true;
      reply.text = std::string("the command threw: ") + thrown.what();
    }
  } else {
    unknown_command(name, &reply);
  }
  if (command.by_call) finished.fetch_add(1, std::memory_order_release);
  record(view, {EventKind::kReturn, command.name, reply.error ? 1 : 0, command.call_id,
                put_text(view, reply.text, kMaxAnswer)});
}

bool start_commands(const View& view) {
  tell_clock(view, own_process(view));  // of a callback that was set before there was a board
  sigset_t blocked, before;
  block_for_command_thread(&blocked);
  ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const int error = start_thread(command_thread, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return false;
  while (started.load(std::memory_order_acquire) == 0) futex_wait(started, 0);
  return true;
}

}  // namespace kv::drill

using kv::drill::board;
using kv::drill::ProcessSlot;
using kv::drill::session;
using kv::drill::Session;
using kv::drill::View;

void kvdrill_answer(kvdrill_reply* reply, const char* text) {
  reply->error = false;
  reply->text = text == nullptr ? "" : text;
}

void kvdrill_answer_error(kvdrill_reply* reply, const char* text) {
  reply->error = true;
  reply->text = text == nullptr ? "" : text;
}

void kvdrill_ready(void) {
  const View* view = board();
  if (view == nullptr || kv::drill::here(*view) == nullptr) return;
  kv::drill::finished.fetch_add(1, std::memory_order_release);
  std::atomic<std::uint32_t>& ready = kv::drill::own_process(*view).ready;
  ready.store(kv::drill::kReadySaid, std::memory_order_release);
  kv::drill::record(*view, {kv::drill::EventKind::kReady, 0, 0, 0, {}});
  // What the caller does next comes after the look at what this process has.
  while (view->head->ready_waits != 0 &&
         ready.load(std::memory_order_acquire) == kv::drill::kReadySaid) {
    kv::drill::futex_wait(ready, kv::drill::kReadySaid);
  }
}

int kvdrill_serve(void) {
  const View* view = board();
  if (view == nullptr || session.engine.load(std::memory_order_acquire) == nullptr) return 0;
  const std::uint32_t process = session.process.load(std::memory_order_acquire);
  if (process == kv::drill::kUnregistered) return 0;
  ProcessSlot& own = view->head->processes[process];
  if (own.forked != 0) return 0;
  std::uint32_t how;
  while ((how = own.exit_how.load(std::memory_order_acquire)) == kv::drill::kExitNone) {
    kv::drill::futex_wait(own.exit_how, kv::drill::kExitNone);
  }
  static_cast<void>(kv::drill::finished.load(std::memory_order_acquire));
  if (how != kv::drill::kExitReturn) kv::drill::end_without_return(how, own.exit_code);
  return own.exit_code;
}

int kvdrill_clock_is_manual(void) {
  const View* view = board();
  return view != nullptr && view->head->manual_clock != 0 ? 1 : 0;
}

int64_t kvdrill_now(void) {
  const View* view = board();
  if (view == nullptr || view->head->manual_clock == 0) return kv::drill::monotonic_ns();
  return view->head->clock_ns.load(std::memory_order_acquire);
}

void kvdrill_on_clock(void (*moved)(void* user, int64_t now), void* user) {
  const auto* clock = new Session::Clock{moved, user};
  const auto* old = session.clock.exchange(clock, std::memory_order_acq_rel);
  const View* view = board();
  if (view == nullptr) {
    delete old;  // later on it may be in use by the command thread: it is left to the process
  } else if (kv::drill::here(*view) != nullptr) {
    kv::drill::tell_clock(*view, kv::drill::own_process(*view));
  }
}
