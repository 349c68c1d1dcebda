// The worker's end of the protocol: one thread that accepts connections on a unix socket, reads
// requests, runs them to completion one after the other and answers.
//
// A silent or slow peer delays nobody: every descriptor is non-blocking and the thread waits for
// all of them at once. Frames are bounded, only the same user may connect, the directory is
// private. When the process has no descriptor left, a client that comes is turned away with the
// help of a spare one; if that is lost too, accepting pauses for 100 ms of the clock.
//
// Stop is exact. "listener.cut" is noted inside the critical section that sets the flag; in the
// same step the listening socket takes no more connections, those that wait to be accepted are
// closed unread, and every accepted one is cut off. No "listener.dispatch" of this generation
// follows its cut, and each earlier one has its "listener.handler.end" before a
// "listener.stop.return" that says done. A cut cannot be taken back: not drained, the listener
// keeps its thread, files and registry entry until another stop has finished, but it takes no new
// requests.
//
// Threads: start() and stop() from any thread, also several at once, also from a handler. The
// handler runs on the listener's thread only.
// Ownership: owns the thread, the sockets, and on disk what it made (socket, directories).
#ifndef KVCORE_LISTENER_LISTENER_H_
#define KVCORE_LISTENER_LISTENER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/status.h"
#include "kvcore/wire/message.h"

namespace kv {

enum class StopResult : std::uint8_t {
  kDone = 0,        // everything is gone: thread, sockets, files
  kNotDrained = 1,  // a handler is still inside; nothing was torn down; call again
  kFailed = 2,      // the clean-up met an error or waited in vain; still registered; call again
};
const char* stop_result_name(StopResult result);  // "done", "not_drained", "failed"

struct ListenerOptions {
  std::string socket_path;  // at most 107 bytes; directories on the way are made, closed to others
  std::string socket_root;  // exists; directories that a start made below it are removed at stop if
                            // they are empty. It may be a link; no link below it is followed.
  // How long a start waits for other starts and stops in the socket's directory.
  Nanos lock_limit = std::chrono::seconds(5);
  std::uint32_t max_body =
      16u << 20;                   // bytes; a longer frame gets an error and ends the connection
  std::string label = "listener";  // of its thread, for people and drills
  // Called on the listener's thread when a connection has ended, for whichever reason, the stop
  // among them: whose it was, see connection(). Must not throw.
  std::function<void(std::int64_t connection)> ended = nullptr;
};

class Listener {
 public:
  // Answers one request. May throw: the reply is then an error. Errors become
  // {"status": "error", "message", "error_type"} replies.
  using Handler = std::function<Result<Message>(const Message&)>;

  // The socket accepts connections when this returns. A stale socket file at the path (nobody
  // listens) is replaced; a living one is kAlreadyExists; anything else there is kAlreadyExists
  // too. kFailedPrecondition: a directory on the way belongs to another user, or others may write
  // into it. kDeadline: a start or stop of another listener, which the text names, was at work in
  // the directory for longer than the lock limit. What was there before stays as it was.
  static Result<std::unique_ptr<Listener>> start(ListenerOptions options, Handler handler,
                                                 Clock& clock, LogSink log);
  // Stops without limit if that was not done. On the listener's own thread it cannot wait: the
  // thread then ends by itself, and the files stay.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // begin_stop() is the cut: at once, never blocks, idempotent. finish_stop() waits for the handler
  // until `deadline`, then closes and removes; it begins the stop if nobody has. stop() is both,
  // with a limit from now. On the listener's own thread they change nothing, and the latter two
  // return kNotDrained at once. Of several at once one does the work; the others wait for it, each
  // until its own deadline, and say what is true then.
  // Never throws, never aborts. `why` (may be null) gets the first failure of a kFailed.
  void begin_stop();
  StopResult finish_stop(Time deadline, Status* why = nullptr);
  StopResult stop(Nanos limit, Status* why = nullptr);

  // Gives up on a listener that could not be stopped: from now on nobody waits for its thread,
  // which ends after its handler if it was cut, and its files stay.
  void abandon();

  // Inside a handler: the number of the connection that its request came by. From 1, unique among
  // those of its listener, so that what a client holds can end with its connection. 0 elsewhere.
  static std::int64_t connection();
  // True on the listener's own thread, that is, inside one of its handlers.
  bool on_own_thread() const;
  // Unique in this process, from 1; the key of its notes.
  std::int64_t generation() const;
  const std::string& socket_path() const;

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kv

#endif  // KVCORE_LISTENER_LISTENER_H_
