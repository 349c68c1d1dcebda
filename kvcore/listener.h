// The worker's end of the protocol: one thread that accepts connections on a unix socket, reads
// requests, runs them to completion one after the other and answers.
//
// A silent or slow peer delays nobody: every descriptor is non-blocking and the thread waits for
// all of them at once. Frames are bounded, only the same user may connect, the directory is private.
//
// Stop is exact. "listener.cut" is noted inside the critical section that sets the flag; in the same
// step the listening socket takes no more connections and every accepted one is cut off. No
// "listener.dispatch" of this generation follows its cut, and each earlier one has its
// "listener.handler.end" before a "listener.stop.return" that says done.
//
// Threads: start() and stop() from any thread, also several at once, also from a handler. The
// handler runs on the listener's thread only.
// Ownership: owns the thread, the sockets, and on disk what it made (socket, directories).
#ifndef KVCORE_LISTENER_H_
#define KVCORE_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kvcore/clock.h"
#include "kvcore/log.h"
#include "kvcore/message.h"
#include "kvcore/status.h"

namespace kv {

enum class StopResult : std::uint8_t {
  kDone,        // everything is gone: thread, sockets, files
  kNotDrained,  // a handler is still inside; nothing was torn down; call again
  kFailed,      // the clean-up met an error; still registered; call again
};
const char* stop_result_name(StopResult result);  // "done", "not_drained", "failed"

struct ListenerOptions {
  std::string socket_path;       // at most 107 bytes; its directory is made if absent, mode 0700
  std::string socket_root;       // directories below it that this listener made are removed by it
  std::uint32_t max_body = 16u << 20;  // bytes; a longer frame ends the connection
  std::string label = "listener";      // of its thread, for people and drills
};

class Listener {
 public:
  // Answers one request. May throw: the reply is then an error. Errors become
  // {"status": "error", "message", "error_type"} replies.
  using Handler = std::function<Result<Message>(const Message&)>;

  // The socket accepts connections when this returns. A stale socket file at the path (nobody
  // listens) is replaced; a living one is kAlreadyExists; anything else there is kAlreadyExists too.
  static Result<std::unique_ptr<Listener>> start(ListenerOptions options, Handler handler,
                                                 Clock& clock, LogSink log);
  // Stops without limit if that was not done; only kNotDrained listeners may not be destroyed
  // (they are leaked by their registry, see runtime.h).
  ~Listener();

  // begin_stop() is the cut: at once, never blocks, idempotent. finish_stop() waits for the handler
  // until `deadline`, then closes and removes. stop() is both, with a limit from now.
  // On the listener's own thread all of them return kNotDrained at once and change nothing.
  // Never throws, never aborts. `why` (may be null) gets the first failure of a kFailed.
  StopResult begin_stop();
  StopResult finish_stop(Time deadline, Status* why = nullptr);
  StopResult stop(Nanos limit, Status* why = nullptr);

  // Unique in this process, from 1; the key of its notes.
  std::int64_t generation() const;
  const std::string& socket_path() const;

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kv

#endif  // KVCORE_LISTENER_H_
