#include "kvcore/transfer/transfer_reader.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <new>
#include <optional>
#include <string_view>

#include "kvcore/hook.h"
#include "kvcore/wire/frame.h"
#include "kvcore/wire/pickle.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

constexpr const char* kWait = "transfer.reply";
constexpr std::uint32_t kMaxReply = 64u << 10;  // bytes; an error with its words

std::string name_of(std::int64_t cache) {
  return "cache " + std::to_string(cache);
}

Status gone(const char* operation, std::int64_t cache, std::string_view why) {
  return Status::error(Code::kUnavailable, operation, name_of(cache), 0, why);
}

Status broken(std::string_view what) {
  return Status::error(Code::kProtocol, "transfer.reply", {}, 0, what);
}

std::optional<int> digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

Result<ShareHandle> parse_handle(std::string_view text) {
  ShareHandle handle;
  if (text.size() != 2 * handle.bytes.size()) return broken("handle: expected 128 hex digits");
  for (std::size_t i = 0; i < handle.bytes.size(); ++i) {
    const auto high = digit(text[2 * i]);
    const auto low = digit(text[2 * i + 1]);
    if (!high || !low) return broken("handle: expected 128 hex digits");
    handle.bytes[i] = static_cast<char>(*high * 16 + *low);
  }
  return handle;
}

struct Offer {
  ShareHandle handle;
  std::size_t bytes = 0;
  std::int64_t generation = 0;
};

Result<Offer> parse_offer(const Message& reply) {
  Offer offer;
  KV_ASSIGN_OR_RETURN(const std::string text, text_field(reply, "handle"));
  KV_ASSIGN_OR_RETURN(offer.handle, parse_handle(text));
  KV_ASSIGN_OR_RETURN(const std::int64_t bytes, integer_field(reply, "bytes"));
  if (bytes <= 0) return broken("bytes: expected more than 0");
  offer.bytes = static_cast<std::size_t>(bytes);
  KV_ASSIGN_OR_RETURN(offer.generation, integer_field(reply, "generation"));
  return offer;
}

}  // namespace

Result<std::unique_ptr<CacheReader>> CacheReader::connect(const std::string& socket_path, Vmm& vmm,
                                                          Clock& clock, Nanos timeout) {
  KV_ASSIGN_OR_RETURN(UniqueFd fd, connect_socket(socket_path));
  return std::unique_ptr<CacheReader>(
      new CacheReader(socket_path, std::move(fd), vmm, clock, timeout));
}

// ---- caches

Result<CacheReader::View> CacheReader::open(std::int64_t cache) {
  const auto held = open_.find(cache);
  if (held != open_.end()) {
    KV_RETURN_IF_ERROR(check_lease("transfer.open", cache));
    ++held->second.count;
    return held->second.view;
  }
  if (!connected() && open_.empty()) KV_RETURN_IF_ERROR(connect_anew());
  Opening& opening = open_[cache];  // before there is anything to lose
  const Result<View> view = open_first(cache);
  if (view.ok()) {
    opening = {*view, 1};
  } else {
    open_.erase(cache);
  }
  return view;
}

Result<CacheReader::View> CacheReader::open_first(std::int64_t cache) {
  KV_ASSIGN_OR_RETURN(const Message reply, ask("open_cache", cache));
  Result<View> view = open_offered(cache, reply);
  if (!view.ok() && step<"transfer.open.undo">(cache)) {
    // The producer would wait for a reader that has nothing open.
    static_cast<void>(ask("release_cache", cache));
    step_done<"transfer.open.undo">(cache);
  }
  return view;
}

Result<CacheReader::View> CacheReader::open_offered(std::int64_t cache, const Message& reply) {
  KV_ASSIGN_OR_RETURN(const Offer offer, parse_offer(reply));
  for (const auto& [other, opening] : open_) {
    if (opening.count == 0 || opening.view.generation == offer.generation) continue;
    return gone("transfer.open", cache,
                "another producer answers than that of " + name_of(other) +
                    ", which is to be released first");
  }
  KV_ASSIGN_OR_RETURN(const DeviceAddress address, vmm_.open_shared(offer.handle));
  return View{address, offer.bytes, offer.generation};
}

Result<CacheReader::View> CacheReader::view(std::int64_t cache) const {
  const Result<View> view = orphan(cache);
  if (view.ok()) KV_RETURN_IF_ERROR(check_lease("transfer.view", cache));
  return view;
}

Result<CacheReader::View> CacheReader::orphan(std::int64_t cache) const {
  const auto entry = open_.find(cache);
  if (entry == open_.end()) {
    return Status::error(Code::kNotFound, "transfer.view", name_of(cache), 0, "it is not open");
  }
  return entry->second.view;
}

Status CacheReader::release(std::int64_t cache) {
  const auto entry = open_.find(cache);
  if (entry == open_.end()) {
    return Status::error(Code::kNotFound, "transfer.release", name_of(cache), 0, "it is not open");
  }
  if (entry->second.count > 1) {
    --entry->second.count;
    return {};
  }
  KV_RETURN_IF_ERROR(vmm_.close_shared(entry->second.view.address));
  open_.erase(entry);
  const Status status = ask("release_cache", cache).status();
  return status.code() == Code::kUnavailable ? Status() : status;
}

Status CacheReader::release_all() {
  Status first;
  for (auto next = open_.begin(); next != open_.end();) {
    const std::int64_t cache = next->first;
    next->second.count = 1;
    ++next;  // release() may erase the entry
    const Status status = release(cache);
    if (first.ok()) first = status;
  }
  return first;
}

// ---- the connection

// Nothing comes unasked: what can be read is the end.
bool CacheReader::connected() const {
  if (!fd_) return false;
  char byte = 0;
  ssize_t n = 0;
  do {
    n = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n < 0 && errno == EAGAIN;
}

Status CacheReader::connect_anew() {
  fd_.reset();
  KV_ASSIGN_OR_RETURN(fd_, connect_socket(path_));
  return {};
}

Status CacheReader::check_lease(const char* operation, std::int64_t cache) const {
  if (!step<"transfer.lease.check">(cache)) return {};
  const bool holds = connected();
  step_done<"transfer.lease.check">(cache);
  if (holds) return {};
  return gone(operation, cache,
              "its lease has ended with the producer or the connection: it is to be released");
}

Result<Message> CacheReader::ask(const char* command, std::int64_t cache) {
  Result<Message> reply = exchange({{"cmd", command}, {"cache", cache}});
  Result<std::string> status = reply.ok() ? text_field(*reply, "status") : reply.error();
  if (!status.ok()) {
    fd_.reset();  // a late reply would be taken for the next one's; the leases end with it
    const Status& why = status.error();
    return Status::error(why.code(), "transfer.request", name_of(cache) + ": " + command,
                         why.native(), why.text());
  }
  if (*status == "success") return reply;
  const Result<std::string> words = text_field(*reply, "message");
  return Status::error(Code::kFailedPrecondition, "transfer.request",
                       name_of(cache) + ": " + command, 0,
                       words.ok() ? *words : "the producer refuses: " + *status);
}

Result<Message> CacheReader::exchange(const Message& request) {
  if (!fd_) {
    return Status::error(Code::kUnavailable, "transfer.request", {}, 0,
                         "the connection was given up");
  }
  KV_ASSIGN_OR_RETURN(const std::string frame, frame_message(request));
  const Time deadline = timeout_ <= Nanos::zero() ? kNever : deadline_after(clock_.now(), timeout_);
  KV_RETURN_IF_ERROR(send(frame, deadline));
  return receive(deadline);
}

Status CacheReader::send(const std::string& frame, Time deadline) {
  std::size_t sent = 0;
  while (sent < frame.size()) {
    const ssize_t n = ::send(fd_.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      const int events = clock_.poll(fd_.get(), POLLOUT, deadline, kWait);
      if (events == 0) return Status::error(Code::kDeadline, "transfer.send");
      if (events < 0) return Status::system("transfer.send", "poll", errno);
    } else if (errno != EINTR) {
      return Status::error(Code::kUnavailable, "transfer.send", {}, errno, "the producer is gone");
    }
  }
  return {};
}

Result<Message> CacheReader::receive(Time deadline) {
  FrameReader reader(kMaxReply);
  while (!reader.complete()) {
    KV_ASSIGN_OR_RETURN(const FrameReader::Part part, reader.want());
    const ssize_t n = ::recv(fd_.get(), part.data, part.size, 0);
    if (n > 0) {
      KV_RETURN_IF_ERROR(reader.got(static_cast<std::size_t>(n)));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Status::error(Code::kUnavailable, "transfer.receive", {}, n == 0 ? 0 : errno,
                           "the producer is gone");
    } else if (errno == EAGAIN) {
      const int events = clock_.poll(fd_.get(), POLLIN, deadline, kWait);
      if (events == 0) return Status::error(Code::kDeadline, "transfer.receive");
      if (events < 0) return Status::system("transfer.receive", "poll", errno);
    }
  }
  return decode_pickle(reader.body());
}

}  // namespace kv
