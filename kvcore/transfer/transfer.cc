#include "kvcore/transfer/transfer.h"

#include <sys/random.h>

#include <condition_variable>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kvcore/base/thread_annotations.h"
#include "kvcore/hook.h"
#include "kvcore/wire/socket_place.h"

namespace kv {
namespace {

constexpr const char* kBuild = "transfer.build";
constexpr const char* kOpen = "transfer.open";

std::string name_of(std::int64_t id) {
  return "cache " + std::to_string(id);
}

Status refused(Code code, const char* operation, std::int64_t id, std::string_view why) {
  return Status::error(code, operation, name_of(id), 0, why);
}

Status shutting_down() {
  return Status::error(Code::kFailedPrecondition, kBuild, {}, 0, "the transfer is shutting down");
}

std::string hex(const ShareHandle& handle) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * handle.bytes.size());
  for (const char byte : handle.bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

std::int64_t new_generation() {
  std::uint64_t number = 0;
  while (number == 0) {
    if (::getrandom(&number, sizeof number, 0) != sizeof number) continue;
    number >>= 1;  // the wire's integers have a sign
  }
  return static_cast<std::int64_t>(number);
}

}  // namespace

Result<std::string> transfer_socket(std::string_view root, std::string_view ipc_name, int rank) {
  KV_ASSIGN_OR_RETURN(const SocketPlace place, socket_place(root, ipc_name, rank));
  return place.directory + "/t" + std::to_string(rank) + ".sock";  // as long as the worker's
}

struct CacheTransfer::Impl {
  struct Entry {
    Cache cache;  // without an address while it is being built
    Readers readers = Readers::kOwnWorker;
    std::optional<ShareHandle> handle;  // none: not shared
    std::set<std::int64_t> leases;      // connections that hold one
    bool dropping = false;              // takes no new readers
    bool working = false;               // a build or a drop is at it, on one thread
    bool sharing = false;               // the driver is naming it for its first reader
  };

  Impl(TransferOptions o, CacheMemory& m, Clock& c, LogSink l)
      : options(std::move(o)), memory(m), clock(c), log(std::move(l)) {}

  Status start();
  Result<Message> serve(const Message& request) KV_EXCLUDES(mu);
  Result<Message> lease(std::int64_t id) KV_EXCLUDES(mu);
  Status refuse_local(std::int64_t id) KV_EXCLUDES(mu);
  // The cache, if others may open it now.
  Result<Entry*> to_open(std::int64_t id) KV_REQUIRES(mu);
  Status share(std::int64_t id) KV_EXCLUDES(mu);
  Status unshare(Entry& entry) KV_EXCLUDES(mu);
  Result<Message> release(std::int64_t id) KV_EXCLUDES(mu);
  void connection_ended(std::int64_t connection) KV_EXCLUDES(mu);

  Result<std::int64_t> begin_build() KV_EXCLUDES(mu);
  Status end_build(const Cache& cache, Readers readers) KV_EXCLUDES(mu);

  StopResult drop(std::int64_t id, Time deadline, Status* why);
  void refuse_readers(std::int64_t id) KV_EXCLUDES(mu);
  // Makes the calling thread the one that works on the entry; otherwise what its drop says.
  std::optional<StopResult> take_over(std::int64_t id, Time deadline, Status* why) KV_EXCLUDES(mu);
  StopResult drain_and_free(Entry& entry, Time deadline, Status* why) KV_EXCLUDES(mu);
  // The readers that are left at the deadline; without one, now.
  std::size_t readers_left(const Entry& entry, std::optional<Time> deadline) KV_EXCLUDES(mu);
  void hand_back(std::int64_t id, StopResult result) KV_EXCLUDES(mu);

  Entry* find(std::int64_t id) KV_REQUIRES(mu) {
    const auto entry = entries.find(id);
    return entry == entries.end() ? nullptr : &entry->second;
  }
  // Not what is still being built.
  Entry* find_built(std::int64_t id) KV_REQUIRES(mu) {
    Entry* entry = find(id);
    return entry != nullptr && entry->cache.address != 0 ? entry : nullptr;
  }
  void say(Severity severity, const std::string& line) const {
    if (log) log(severity, options.label + ": " + line);
  }

  const TransferOptions options;
  CacheMemory& memory;
  Clock& clock;
  const LogSink log;
  const std::int64_t generation = new_generation();

  Mutex mu;
  std::condition_variable changed;
  std::map<std::int64_t, Entry> entries KV_GUARDED_BY(mu);
  std::int64_t last_id KV_GUARDED_BY(mu) = 0;
  bool stopping KV_GUARDED_BY(mu) = false;
  // Goes first: its thread uses the rest.
  std::unique_ptr<Listener> listener;
};

CacheTransfer::CacheTransfer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CacheTransfer::~CacheTransfer() = default;

Result<std::unique_ptr<CacheTransfer>> CacheTransfer::start(TransferOptions options,
                                                            CacheMemory& memory, Clock& clock,
                                                            LogSink log) {
  auto impl = std::make_unique<Impl>(std::move(options), memory, clock, std::move(log));
  KV_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<CacheTransfer>(new CacheTransfer(std::move(impl)));
}

Status CacheTransfer::Impl::start() {
  ListenerOptions own;
  own.socket_path = options.socket_path;
  own.socket_root = options.socket_root;
  own.lock_limit = options.drain_limit;
  own.max_body = 4096;
  own.label = options.label;
  own.ended = [this](std::int64_t connection) { connection_ended(connection); };
  KV_ASSIGN_OR_RETURN(
      listener,
      Listener::start(
          std::move(own), [this](const Message& request) { return serve(request); }, clock, log));
  return {};
}

// ---- readers

Result<Message> CacheTransfer::Impl::serve(const Message& request) {
  KV_ASSIGN_OR_RETURN(const std::string command, text_field(request, "cmd"));
  KV_ASSIGN_OR_RETURN(const std::int64_t id, integer_field(request, "cache"));
  if (command == "open_cache") return lease(id);
  if (command == "release_cache") return release(id);
  return Status::error(Code::kInvalidArgument, "transfer", command, 0,
                       "unknown command, expected open_cache or release_cache");
}

Status CacheTransfer::Impl::refuse_local(std::int64_t id) {
  {
    const MutexLock lock(mu);
    const Entry* entry = find_built(id);
    if (entry == nullptr || entry->readers == Readers::kOthers) return {};
  }
  if (!step<"transfer.keep_local">(id)) return {};
  step_done<"transfer.keep_local">(id);
  return refused(Code::kFailedPrecondition, kOpen, id, "it is local to its worker");
}

Result<CacheTransfer::Impl::Entry*> CacheTransfer::Impl::to_open(std::int64_t id) {
  Entry* entry = find_built(id);
  if (entry == nullptr) return refused(Code::kNotFound, kOpen, id, "there is none");
  if (entry->dropping) {
    return refused(Code::kFailedPrecondition, kOpen, id, "it is being dropped");
  }
  return entry;
}

// A drop waits until it is shared, or not, and then knows what to take back.
Status CacheTransfer::Impl::share(std::int64_t id) {
  DeviceAddress address = 0;
  {
    const MutexLock lock(mu);
    KV_ASSIGN_OR_RETURN(Entry* const entry, to_open(id));
    if (entry->handle) return {};
    entry->sharing = true;
    address = entry->cache.address;
  }
  const Result<ShareHandle> handle = memory.share(address);
  const MutexLock lock(mu);
  if (Entry* entry = find(id)) {
    entry->sharing = false;
    if (handle.ok()) entry->handle = *handle;
  }
  changed.notify_all();
  return handle.status();
}

Result<Message> CacheTransfer::Impl::lease(std::int64_t id) {
  KV_RETURN_IF_ERROR(refuse_local(id));
  KV_RETURN_IF_ERROR(share(id));
  const MutexLock lock(mu);
  KV_ASSIGN_OR_RETURN(Entry* const entry, to_open(id));  // a drop may have begun meanwhile
  Message reply{{"status", "success"},
                {"handle", hex(entry->handle.value())},
                {"bytes", static_cast<std::int64_t>(entry->cache.bytes)},
                {"generation", generation}};
  entry->leases.insert(Listener::connection());
  note<"transfer.lease">(id, Listener::connection());
  return reply;
}

Result<Message> CacheTransfer::Impl::release(std::int64_t id) {
  const MutexLock lock(mu);
  Entry* entry = find(id);
  if (entry == nullptr || entry->leases.erase(Listener::connection()) == 0) {
    return refused(Code::kNotFound, "transfer.release", id, "this connection has no lease on it");
  }
  note<"transfer.lease.end">(id, Listener::connection(), "released");
  changed.notify_all();
  return Message{{"status", "success"}};
}

void CacheTransfer::Impl::connection_ended(std::int64_t connection) {
  if (!step<"transfer.lease.end_with_connection">(connection)) return;
  {
    const MutexLock lock(mu);
    for (auto& [id, entry] : entries) {
      if (entry.leases.erase(connection) == 0) continue;
      note<"transfer.lease.end">(id, connection, "connection ended");
    }
    changed.notify_all();
  }
  step_done<"transfer.lease.end_with_connection">(connection);
}

// ---- build

Result<CacheTransfer::Cache> CacheTransfer::build(std::size_t bytes, Readers readers) {
  if (bytes == 0 || bytes % kCacheUnit != 0) {
    return Status::error(Code::kInvalidArgument, kBuild, std::to_string(bytes) + " bytes", 0,
                         "expected a multiple of " + std::to_string(kCacheUnit));
  }
  Cache cache;
  cache.bytes = bytes;
  KV_ASSIGN_OR_RETURN(cache.id, impl_->begin_build());
  const Result<DeviceAddress> address = impl_->memory.allocate(bytes);
  cache.address = address.value_or(0);
  KV_RETURN_IF_ERROR(impl_->end_build(cache, readers));
  if (!address.ok()) return address.status();
  if (step<"transfer.share_on_request">(cache.id)) {
    step_done<"transfer.share_on_request">(cache.id);
  } else {
    static_cast<void>(impl_->share(cache.id));  // the defect: in vain, if nobody asks
  }
  return cache;
}

Result<std::int64_t> CacheTransfer::Impl::begin_build() {
  const MutexLock lock(mu);
  if (stopping) return shutting_down();
  try {
    // Before there is anything to lose.
    entries[last_id + 1].working = true;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, kBuild);
  }
  return ++last_id;
}

// A shutdown that came meanwhile waits for this, and gives the cache back.
Status CacheTransfer::Impl::end_build(const Cache& cache, Readers readers) {
  const MutexLock lock(mu);
  Entry* entry = find(cache.id);
  entry->working = false;
  entry->cache = cache;
  entry->readers = readers;
  if (cache.address == 0) entries.erase(cache.id);
  changed.notify_all();
  return stopping ? shutting_down() : Status();
}

Result<CacheTransfer::Cache> CacheTransfer::find(std::int64_t id) const {
  const MutexLock lock(impl_->mu);
  const Impl::Entry* entry = impl_->find_built(id);
  if (entry == nullptr) return refused(Code::kNotFound, "transfer.find", id, "there is none");
  return entry->cache;
}

std::int64_t CacheTransfer::generation() const {
  return impl_->generation;
}

std::size_t CacheTransfer::leases(std::int64_t id) const {
  const MutexLock lock(impl_->mu);
  const Impl::Entry* entry = impl_->find(id);
  return entry == nullptr ? 0 : entry->leases.size();
}

// ---- drop

StopResult CacheTransfer::drop(std::int64_t id, Status* why) {
  return impl_->drop(id, deadline_after(impl_->clock.now(), impl_->options.drain_limit), why);
}

StopResult CacheTransfer::Impl::drop(std::int64_t id, Time deadline, Status* why) {
  if (listener->on_own_thread()) return StopResult::kNotDrained;
  refuse_readers(id);
  if (const auto result = take_over(id, deadline, why)) return *result;
  Entry* entry = nullptr;
  {
    const MutexLock lock(mu);
    entry = find(id);  // stays where it is while this thread works on it
  }
  StopResult result = StopResult::kFailed;
  try {
    result = drain_and_free(*entry, deadline, why);
  } catch (const std::bad_alloc&) {  // it keeps its place: a later call goes on from there
  }
  hand_back(id, result);
  return result;
}

void CacheTransfer::Impl::refuse_readers(std::int64_t id) {
  if (!step<"transfer.drop.refuse_new">(id)) return;
  {
    const MutexLock lock(mu);
    if (Entry* entry = find(id)) entry->dropping = true;
  }
  step_done<"transfer.drop.refuse_new">(id);
}

std::optional<StopResult> CacheTransfer::Impl::take_over(std::int64_t id, Time deadline,
                                                         Status* why) {
  MutexLock lock(mu);
  if (id < 1 || id > last_id) {
    if (why != nullptr) *why = refused(Code::kNotFound, "transfer.drop", id, "there never was one");
    return StopResult::kFailed;
  }
  const auto free = [this, id]() KV_NO_THREAD_SAFETY_ANALYSIS {
    const Entry* entry = find(id);
    return entry == nullptr || !(entry->working || entry->sharing);
  };
  if (!free() && !clock.wait(lock, changed, deadline, "transfer.drop.second", free)) {
    return StopResult::kNotDrained;
  }
  Entry* entry = find(id);
  if (entry == nullptr) return StopResult::kDone;
  entry->working = true;
  return std::nullopt;
}

void CacheTransfer::Impl::hand_back(std::int64_t id, StopResult result) {
  const MutexLock lock(mu);
  find(id)->working = false;
  if (result == StopResult::kDone) entries.erase(id);
  changed.notify_all();
}

std::size_t CacheTransfer::Impl::readers_left(const Entry& entry, std::optional<Time> deadline) {
  MutexLock lock(mu);
  const auto none = [&entry] { return entry.leases.empty(); };
  if (deadline && !none()) clock.wait(lock, changed, *deadline, "transfer.drain", none);
  return entry.leases.size();
}

StopResult CacheTransfer::Impl::drain_and_free(Entry& entry, Time deadline, Status* why) {
  const std::int64_t id = entry.cache.id;
  point<"transfer.drop.draining">(id);
  std::size_t left = 0;
  if (step<"transfer.drop.wait_readers">(id)) {
    left = readers_left(entry, deadline);
    step_done<"transfer.drop.wait_readers">(id, static_cast<std::int64_t>(left));
  } else {
    left = readers_left(entry, std::nullopt);
  }
  if (left > 0 && step<"transfer.drop.defer">(id)) {
    // Freed now, it would be somebody else's while they read it.
    say(Severity::kWarning,
        name_of(id) + ": not drained: readers that hold it: " + std::to_string(left));
    step_done<"transfer.drop.defer">(id);
    return StopResult::kNotDrained;
  }
  Status status = left == 0 ? unshare(entry) : Status();
  if (status.ok()) status = memory.free(entry.cache.address);
  if (status.ok()) return StopResult::kDone;
  say(Severity::kError, name_of(id) + ": not freed: " + status.to_string());
  if (why != nullptr) *why = status;
  return StopResult::kFailed;
}

// Whether a reader ever opened it makes no difference: a lease is enough to have shared it.
Status CacheTransfer::Impl::unshare(Entry& entry) {
  const std::int64_t id = entry.cache.id;
  {
    const MutexLock lock(mu);
    if (!entry.handle) return {};
  }
  if (!step<"transfer.unshare">(id)) return {};
  const Status status = memory.unshare(entry.cache.address);
  step_done<"transfer.unshare">(id);
  const MutexLock lock(mu);
  if (status.ok()) entry.handle.reset();
  return status;
}

StopResult CacheTransfer::shutdown(Status* why) {
  if (impl_->listener->on_own_thread()) return StopResult::kNotDrained;
  const Time deadline = deadline_after(impl_->clock.now(), impl_->options.drain_limit);
  std::vector<std::int64_t> ids;
  try {
    const MutexLock lock(impl_->mu);
    impl_->stopping = true;
    for (const auto& [id, entry] : impl_->entries) ids.push_back(id);
  } catch (const std::bad_alloc&) {
    return StopResult::kFailed;
  }
  // None of them takes a reader while another one is waited for.
  for (const std::int64_t id : ids) impl_->refuse_readers(id);
  StopResult worst = StopResult::kDone;
  for (const std::int64_t id : ids) {
    Status failure;
    const StopResult result = impl_->drop(id, deadline, &failure);
    if (why != nullptr && why->ok()) *why = failure;
    if (result == StopResult::kNotDrained || worst == StopResult::kDone) worst = result;
  }
  return worst == StopResult::kDone ? impl_->listener->finish_stop(deadline, why) : worst;
}

}  // namespace kv
