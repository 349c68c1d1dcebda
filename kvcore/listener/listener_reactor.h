// The listener's thread: waits for all its descriptors at once, accepts, reads, runs the handler to
// completion, answers. And the cut: the one critical section in which a stop begins.
//
// Threads: run() is the thread. cut(), stopping(), wait_ended(), ended() and on_own_thread() are
// for any other (on_own_thread() for any). The lock guards the flag, the table of connections and
// the admission of a request, so nothing slips between "stop has begun" and "it is cut off".
// Ownership: owns the sockets, the poll set and the connections. The thread and the Listener share
// it: a thread that must be let go (only a drill does that) still has all it uses.
#ifndef KVCORE_LISTENER_LISTENER_REACTOR_H_
#define KVCORE_LISTENER_LISTENER_REACTOR_H_

#include <sys/epoll.h>
#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/peer_log.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/base/unique_fd.h"
#include "kvcore/listener/listener.h"
#include "kvcore/listener/listener_connection.h"

namespace kv {

class Reactor {
 public:
  struct Setup {
    std::int64_t generation = 0;
    std::string label;
    std::uint32_t max_body = 0;
    Listener::Handler handler;
    std::function<void(std::int64_t connection)> ended;
    Clock* clock = nullptr;
    LogSink log;
  };

  explicit Reactor(Setup setup);

  // Makes the poll set around a listening, non-blocking socket. Before run().
  Status prepare(UniqueFd listening);
  // The thread's whole life. Never throws.
  void run();

  // Stop begins, once: the flag, and with it in one critical section the end of new connections, of
  // those that wait to be accepted, and of all accepted ones. Never blocks.
  void cut() KV_EXCLUDES(mu_);
  // Waits until the thread has left its loop; false: it had not by `deadline`.
  bool wait_ended(Time deadline) KV_EXCLUDES(mu_);
  bool ended() const KV_EXCLUDES(mu_);
  // The command whose handler is inside now; empty: none.
  std::string inside() const KV_EXCLUDES(mu_);
  bool on_own_thread() const;
  // The connection whose request the calling thread handles; 0: none.
  static std::int64_t connection();
  // Closes the sockets; the thread has ended.
  void close_sockets();

 private:
  bool stopping() const KV_EXCLUDES(mu_);

  // --- accepting
  void accept_client();
  UniqueFd accept_one();
  // The table's connection, or null: stop has begun, and the client was closed unread.
  Connection* adopt(UniqueFd fd) KV_EXCLUDES(mu_);
  bool shed_one() KV_EXCLUDES(mu_);
  bool same_user(int fd) const;
  void watch_listening(std::uint32_t events);
  int drop_queued() KV_REQUIRES(mu_);

  // --- serving; false: the connection is to be closed
  bool serve(Connection& connection);
  bool handle_frames(Connection& connection);
  bool handle_frame(Connection& connection);
  bool refuse(Connection& connection, const Status& why);
  bool reply(Connection& connection, const Message& message);
  bool watch(Connection& connection, std::uint32_t events);
  void serve_or_close(Connection& connection);
  // The admission: false once stop has begun.
  bool admit(const std::string& command) KV_EXCLUDES(mu_);
  struct Inside;
  void handler_ended(const std::string& command) KV_EXCLUDES(mu_);
  Result<Message> call_handler(const Message& request, const std::string& command);
  void close(Connection& connection) KV_EXCLUDES(mu_);
  void leave() KV_EXCLUDES(mu_);
  void tell_ended(std::int64_t connection) const;

  int wait(epoll_event* events, int capacity);
  void say(Severity severity, const std::string& line) const;

  const Setup setup_;
  PeerLog strangers_, peers_;  // what other users, and clients, can make it say
  const uid_t user_;           // who may connect: who the process was when the listener was made
  UniqueFd listening_, poll_;
  std::int64_t connections_ = 0;  // the thread's own: how many there were
  bool accept_paused_ = false;    // the thread's own
  bool starving_ = false;         // the thread's own: the lack of descriptors has been logged

  mutable Mutex mu_;
  std::condition_variable changed_;
  bool stopping_ KV_GUARDED_BY(mu_) = false;
  bool ended_ KV_GUARDED_BY(mu_) = false;
  std::string inside_ KV_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Connection>> open_ KV_GUARDED_BY(mu_);
  // Given up for a moment to take, and turn away, a client when no descriptor is left.
  UniqueFd spare_ KV_GUARDED_BY(mu_);
};

}  // namespace kv

#endif  // KVCORE_LISTENER_LISTENER_REACTOR_H_
