#include "kvcore/listener/listener_reactor.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include "kvcore/hook.h"
#include "kvcore/wire/pickle.h"

namespace kv {
namespace {

constexpr int kEvents = 64;          // taken from the poll set at once
constexpr int kAcceptTurn = 32;      // clients lost or turned away before the others get a turn
constexpr int kReadTurn = 16;        // reads of one connection before the others get a turn
constexpr int kQueuedMax = 1 << 16;  // more than any backlog
constexpr Nanos kAcceptRetry = std::chrono::milliseconds(100);
constexpr std::size_t kMostQuoted = 128;  // of a command's name, in notes and logs
// What is larger lies in mappings of its own, which go back to the kernel when it is freed.
constexpr int kLargeAllocation = 1 << 20;

// The reactor whose thread this is.
thread_local const Reactor* t_reactor = nullptr;
// The connection whose request is handled on it.
thread_local std::int64_t t_connection = 0;

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Reactor::Reactor(Setup setup)
    : setup_(std::move(setup)),
      strangers_(*setup_.clock, setup_.log, setup_.label + ": "),
      peers_(*setup_.clock, setup_.log, setup_.label + ": "),
      user_(::geteuid()) {}

Status Reactor::prepare(UniqueFd listening) {
  // Left alone the C library raises its limit with each large body, up to 32 MiB, and then keeps as
  // much of every thread's heap for ever. This holds for the whole process.
  ::mallopt(M_MMAP_THRESHOLD, kLargeAllocation);
  listening_ = std::move(listening);
  poll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll_) return Status::system("epoll_create1", setup_.label, errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, listening_.get(), &event) != 0) {
    return Status::system("epoll_ctl", setup_.label, errno);
  }
  const MutexLock lock(mu_);
  spare_.reset(::fcntl(poll_.get(), F_DUPFD_CLOEXEC, 0));
  return {};
}

void Reactor::say(Severity severity, const std::string& line) const {
  if (setup_.log) setup_.log(severity, setup_.label + ": " + line);
}

bool Reactor::on_own_thread() const {
  return t_reactor == this;
}

std::int64_t Reactor::connection() {
  return t_connection;
}

void Reactor::tell_ended(std::int64_t connection) const {
  if (setup_.ended) setup_.ended(connection);
}

bool Reactor::stopping() const {
  const MutexLock lock(mu_);
  return stopping_;
}

bool Reactor::ended() const {
  const MutexLock lock(mu_);
  return ended_;
}

std::string Reactor::inside() const {
  const MutexLock lock(mu_);
  return inside_;
}

bool Reactor::wait_ended(Time deadline) {
  MutexLock lock(mu_);
  return setup_.clock->wait(lock, changed_, deadline, "listener.stop.drain",
                            [this]() KV_NO_THREAD_SAFETY_ANALYSIS { return ended_; });
}

void Reactor::close_sockets() {
  listening_.reset();
  poll_.reset();
  const MutexLock lock(mu_);
  spare_.reset();
}

// ---- the cut

void Reactor::cut() {
  const std::int64_t generation = setup_.generation;
  const MutexLock lock(mu_);
  if (stopping_) return;
  stopping_ = true;
  note<"listener.cut">(generation);
  if (step<"listener.stop.refuse_new">(generation)) {
    // Refuses new clients in the kernel, and hangs up the descriptor that the poll set watches:
    // that is what wakes a thread that waits.
    ::shutdown(listening_.get(), SHUT_RDWR);
    step_done<"listener.stop.refuse_new">(generation);
  }
  if (step<"listener.stop.close_queued">(generation)) {
    // The thread may be inside a handler for long; who waits to be accepted shall not wait with it.
    const int dropped = drop_queued();
    step_done<"listener.stop.close_queued">(generation, dropped);
  }
  if (step<"listener.stop.cancel_reads">(generation)) {
    for (const auto& connection : open_) connection->cut_off();
    step_done<"listener.stop.cancel_reads">(generation, static_cast<std::int64_t>(open_.size()));
  }
}

int Reactor::drop_queued() {
  int dropped = 0;
  for (int i = 0; i < kQueuedMax; ++i) {
    const UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client) {
      note<"listener.dropped">(setup_.generation);
      ++dropped;
    } else if (out_of_descriptors(errno) && spare_) {
      spare_.reset();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      break;
    }
  }
  return dropped;
}

// ---- the loop

void Reactor::run() {
  t_reactor = this;
  ::pthread_setname_np(::pthread_self(), setup_.label.substr(0, 15).c_str());
  note<"thread.label">(setup_.generation, 0, setup_.label.c_str());
  std::array<epoll_event, kEvents> events;
  while (!stopping()) {
    const int n = wait(events.data(), kEvents);
    if (n < 0) break;
    for (int i = 0; i < n; ++i) {
      if (events[i].data.ptr == nullptr) {
        accept_client();
      } else {
        serve_or_close(*static_cast<Connection*>(events[i].data.ptr));
      }
    }
  }
  leave();
}

int Reactor::wait(epoll_event* events, int capacity) {
  if (accept_paused_) {
    // Nothing tells when another part of the process closes a descriptor.
    const Time retry = setup_.clock->now() + kAcceptRetry;
    setup_.clock->poll(poll_.get(), POLLIN, retry, "listener.accept.retry");
    watch_listening(EPOLLIN);
    accept_paused_ = false;
  }
  const int n = ::epoll_wait(poll_.get(), events, capacity, -1);
  if (n >= 0) return n;
  if (errno == EINTR) return 0;
  say(Severity::kError, Status::system("epoll_wait", "", errno).to_string());
  return -1;
}

void Reactor::leave() {
  std::vector<std::unique_ptr<Connection>> last;
  {
    const MutexLock lock(mu_);
    last.swap(open_);
  }
  for (auto& connection : last) {
    const std::int64_t number = connection->number;
    connection.reset();
    tell_ended(number);
  }
  const MutexLock lock(mu_);
  note<"listener.thread.end">(setup_.generation);
  ended_ = true;
  changed_.notify_all();
}

// ---- accepting

// One client each time the socket is ready: the usual client comes alone, and asking whether there
// is a second costs a call. If there is, the next wait returns at once, and others had their turn.
void Reactor::accept_client() {
  UniqueFd client = accept_one();
  if (!client) return;
  if (!same_user(client.get())) {
    strangers_.say(Severity::kWarning, "turned away a client of another user");
    return;
  }
  try {
    Connection* connection = adopt(std::move(client));
    if (connection == nullptr) return;
    point<"listener.accepted">(setup_.generation);
    // Its request is often there by now: then it never enters the poll set before its answer.
    serve_or_close(*connection);
  } catch (const std::bad_alloc&) {
    peers_.say(Severity::kError, "no memory for a connection: closed");
  }
}

// A client, or none: nobody waits, or accepting is paused.
UniqueFd Reactor::accept_one() {
  for (int i = 0; i < kAcceptTurn; ++i) {
    UniqueFd client;
    const int failure = attempt<"listener.accept">(setup_.generation, [&] {
      client.reset(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      return client ? 0 : errno;
    });
    if (failure == 0) {
      starving_ = false;
      return client;  // none, when the success was a drill's
    }
    if (failure == EINTR || failure == ECONNABORTED || failure == EPROTO) continue;
    if (failure == EAGAIN || failure == EWOULDBLOCK) break;
    if (failure == EINVAL) {  // shut down: by our stop, or behind our back, and then for good
      if (!stopping()) {
        say(Severity::kError, "the listening socket was shut down by somebody else");
        ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, listening_.get(), nullptr);
      }
      break;
    }
    if (!starving_) {
      peers_.say(Severity::kWarning,
                 Status::system("accept", "", failure).to_string() + ": clients are turned away");
      starving_ = true;
    }
    if (out_of_descriptors(failure) && shed_one()) continue;
    watch_listening(0);  // a hang-up still wakes us
    accept_paused_ = true;
    break;
  }
  return UniqueFd();
}

// Takes one client with the spare descriptor and turns it away, so that it need not wait and the
// readiness of the listening socket does not spin the loop. False: there is no spare any more.
bool Reactor::shed_one() {
  const MutexLock lock(mu_);
  if (spare_) {
    spare_.reset();
    const UniqueFd turned_away(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  spare_.reset(::fcntl(poll_.get(), F_DUPFD_CLOEXEC, 0));
  return static_cast<bool>(spare_);
}

void Reactor::watch_listening(std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = nullptr;
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, listening_.get(), &event);
}

bool Reactor::same_user(int fd) const {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == user_;
}

Connection* Reactor::adopt(UniqueFd fd) {
  auto connection = std::make_unique<Connection>(std::move(fd), setup_.max_body);
  connection->number = ++connections_;
  const MutexLock lock(mu_);
  if (stopping_) {
    note<"listener.dropped">(setup_.generation);
    return nullptr;  // closed unread
  }
  connection->index = open_.size();
  open_.push_back(std::move(connection));
  return open_.back().get();
}

void Reactor::close(Connection& connection) {
  // A child forked without an exec may hold a copy of the descriptor: without this the poll set
  // would go on reporting a connection that is gone.
  if (connection.watched != 0) {
    ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, connection.fd(), nullptr);
  }
  const std::int64_t number = connection.number;
  {
    const MutexLock lock(mu_);
    const std::size_t index = connection.index;
    std::swap(open_[index], open_.back());
    open_[index]->index = index;
    open_.pop_back();
  }
  tell_ended(number);
}

// ---- serving

void Reactor::serve_or_close(Connection& connection) {
  bool keep = false;
  try {
    keep = serve(connection);
  } catch (const std::bad_alloc&) {
    peers_.say(Severity::kError, "no memory for a request: its connection is closed");
  }
  if (!keep) close(connection);
}

bool Reactor::serve(Connection& connection) {
  if (connection.unsent()) {
    if (!connection.flush(setup_.generation)) return false;
    if (!handle_frames(connection)) return false;
  }
  bool drained = false;
  for (int turn = 0; turn < kReadTurn && !drained; ++turn) {
    // A peer that does not take its replies is not read from.
    if (connection.unsent() || connection.ending()) break;
    const Connection::Read read = connection.read();
    if (read == Connection::Read::kEnd) return false;
    if (read == Connection::Read::kLost) {
      if (!refuse(connection, connection.status())) return false;
    } else if (!handle_frames(connection)) {
      return false;
    }
    drained = read == Connection::Read::kDrained;
  }
  if (connection.unsent()) return watch(connection, EPOLLOUT);
  if (connection.ending()) return false;
  if (drained) {
    const auto have = static_cast<std::int64_t>(connection.have());
    if (connection.in_body()) {
      point<"listener.read.body">(have);
    } else {
      point<"listener.read.header">(have);
    }
  }
  return watch(connection, EPOLLIN);
}

bool Reactor::watch(Connection& connection, std::uint32_t events) {
  if (connection.watched == events) return true;
  epoll_event event{};
  event.events = events;
  event.data.ptr = &connection;
  const int how = connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(poll_.get(), how, connection.fd(), &event) != 0) {
    peers_.say(Severity::kError, Status::system("epoll_ctl", "", errno).to_string());
    return false;
  }
  connection.watched = events;
  return true;
}

bool Reactor::handle_frames(Connection& connection) {
  while (connection.complete() && !connection.unsent() && !connection.ending()) {
    if (!handle_frame(connection)) return false;
    const Status next = connection.next();
    if (!next.ok() && !connection.ending() && !refuse(connection, next)) return false;
  }
  return true;
}

// Every dispatch has its end, also when memory runs out in between.
struct Reactor::Inside {
  Inside(Reactor& r, const std::string& c) : reactor(r), command(c) {}
  ~Inside() { reactor.handler_ended(command); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  Reactor& reactor;
  const std::string& command;
};

bool Reactor::handle_frame(Connection& connection) {
  const Result<Message> request = decode_pickle(connection.body());
  point<"listener.frame.complete">(setup_.generation);
  if (!request.ok()) return refuse(connection, request.status());
  const std::string command(text_view(*request, "cmd").value_or("").substr(0, kMostQuoted));
  if (!admit(command)) return false;
  const Result<Message> answer = [&] {
    const Inside inside(*this, command);
    point<"listener.handler.begin">(setup_.generation);
    t_connection = connection.number;
    const Result<Message> handled = call_handler(*request, command);
    t_connection = 0;
    return handled;
  }();
  return reply(connection, answer.ok() ? *answer : error_reply(answer.status()));
}

bool Reactor::admit(const std::string& command) {
  const MutexLock lock(mu_);
  if (stopping_) {
    if (step<"listener.dispatch.refuse_stopped">(setup_.generation)) {
      note<"listener.dropped">(setup_.generation, 0, command.c_str());
      step_done<"listener.dispatch.refuse_stopped">(setup_.generation);
      return false;
    }
  }
  inside_ = command.empty() ? "?" : command;  // may throw, so before it counts as dispatched
  note<"listener.dispatch">(setup_.generation, 0, command.c_str());
  return true;
}

void Reactor::handler_ended(const std::string& command) {
  const MutexLock lock(mu_);
  inside_.clear();
  note<"listener.handler.end">(setup_.generation, 0, command.c_str());
}

Result<Message> Reactor::call_handler(const Message& request, const std::string& command) {
  std::string thrown;
  try {
    return setup_.handler(request);
  } catch (const std::exception& exception) {
    thrown = exception.what();
  } catch (...) {
    thrown = "an exception of unknown type";
  }
  return Status::error(Code::kInternal, "listener.handler", command, 0, thrown);
}

// Answers what cannot be handled, and ends the connection: its bytes have lost their meaning.
bool Reactor::refuse(Connection& connection, const Status& why) {
  if (stopping()) {
    note<"listener.dropped">(setup_.generation);
    return false;
  }
  peers_.say(Severity::kInfo, "refused a request: " + why.to_string());
  connection.end_after_replies();
  return reply(connection, error_reply(why));
}

bool Reactor::reply(Connection& connection, const Message& message) {
  Result<std::string> frame = frame_message(message);
  if (!frame.ok()) {
    peers_.say(Severity::kError, "a reply cannot be sent: " + frame.error().to_string());
    frame = frame_message(error_reply(frame.error()));
    if (!frame.ok()) return false;
  }
  point<"listener.reply">(setup_.generation);
  connection.queue(std::move(*frame));
  return connection.flush(setup_.generation);
}

}  // namespace kv
