// KV caches that other workers may read. A cache that only its own worker reads stays local and is
// never shared. One that others may read is shared once, when the first of them asks, and read
// under leases: a reader (transfer_reader.h) asks for one, opens the memory, reads, and gives the
// lease back. A drop takes no new readers, waits for those it has up to a limit, takes the share
// back if there was one, and only then frees.
//
// A lease ends with the release, or with the connection that it came by: a dead reader holds up
// nobody. It names the generation of its producer: the numbers of caches begin anew with each.
// Requests come over a listener of the transfer's own; the first one for a cache makes a driver
// call, which others wait for:
//   {"cmd": "open_cache", "cache": id}     {"status": "success", "handle": 128 hex digits, "bytes",
//                                           "generation"}
//   {"cmd": "release_cache", "cache": id}  {"status": "success"}
// The stop of the listener ends all leases, so the caches are dropped before it.
//
// Threads: all members from any thread. From the listener's own, drop() and shutdown() change
// nothing and say kNotDrained: nothing could be drained there.
// Ownership: owns the listener and the caches' memory until their drop; borrows CacheMemory and
// clock, which outlive it.
#ifndef KVCORE_TRANSFER_TRANSFER_H_
#define KVCORE_TRANSFER_TRANSFER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/status.h"
#include "kvcore/driver/vmm.h"
#include "kvcore/listener/listener.h"

namespace kv {

// Where caches lie: the driver's plain memory, or a framework whose tensors they are.
// Threads: all members from any thread.
class CacheMemory {
 public:
  virtual ~CacheMemory() = default;
  virtual Result<DeviceAddress> allocate(std::size_t bytes) = 0;
  virtual Status free(DeviceAddress address) = 0;
  // Names the memory for other processes. Frameworks count each share, opened or not, and what is
  // freed with shares that were not taken back may stay for ever.
  virtual Result<ShareHandle> share(DeviceAddress address) = 0;
  // Takes a share back: nobody has it open, and nobody will open it. Once for each.
  virtual Status unshare(DeviceAddress address) = 0;
};

// The driver's own, which counts by itself who has the memory open.
class DriverMemory final : public CacheMemory {
 public:
  explicit DriverMemory(Vmm& vmm) : vmm_(vmm) {}
  Result<DeviceAddress> allocate(std::size_t bytes) override { return vmm_.allocate(bytes); }
  Status free(DeviceAddress address) override { return vmm_.free(address); }
  Result<ShareHandle> share(DeviceAddress address) override { return vmm_.share(address); }
  Status unshare(DeviceAddress) override { return {}; }

 private:
  Vmm& vmm_;
};

// Caches are multiples of it: the driver lays smaller allocations into one block, and a share names
// the whole block.
inline constexpr std::size_t kCacheUnit = 2u << 20;

// Where a producer of this rank listens for readers; in the directory of its worker's socket.
Result<std::string> transfer_socket(std::string_view root, std::string_view ipc_name, int rank);

struct TransferOptions {
  std::string socket_path;                      // see transfer_socket()
  std::string socket_root;                      // as ListenerOptions
  Nanos drain_limit = std::chrono::seconds(5);  // of drops; also ListenerOptions::lock_limit
  std::string label = "transfer";               // of its thread and its log lines
};

class CacheTransfer {
 public:
  static Result<std::unique_ptr<CacheTransfer>> start(TransferOptions options, CacheMemory& memory,
                                                      Clock& clock, LogSink log);
  // Stops the listener. Caches that were not dropped stay allocated.
  ~CacheTransfer();
  CacheTransfer(const CacheTransfer&) = delete;
  CacheTransfer& operator=(const CacheTransfer&) = delete;

  struct Cache {
    std::int64_t id = 0;  // from 1, never used again
    DeviceAddress address = 0;
    std::size_t bytes = 0;
  };
  enum class Readers : std::uint8_t { kOwnWorker, kOthers };
  // On failure nothing is left. kInvalidArgument: no multiple of kCacheUnit. kFailedPrecondition:
  // shutdown() has begun; if meanwhile, it also gives this one back.
  Result<Cache> build(std::size_t bytes, Readers readers);
  // kNotFound: never built, not yet, or dropped.
  Result<Cache> find(std::int64_t id) const;
  // How many readers hold a lease on it now.
  std::size_t leases(std::int64_t id) const;
  // Of all transfers of this machine no other has this number; more than 0.
  std::int64_t generation() const;

  // kDone: freed; also if that was done before. kNotDrained: a reader held it until the limit;
  // nothing was freed, it takes no new readers, call again. kFailed: the driver refused; likewise.
  // Of several at once one does the work, the others wait for it, each within its own limit.
  // `why` (may be null) gets the reason of a kFailed.
  StopResult drop(std::int64_t id, Status* why = nullptr);
  // Drops all under one limit, then stops the listener. Idempotent.
  StopResult shutdown(Status* why = nullptr);

 private:
  struct Impl;
  explicit CacheTransfer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kv

#endif  // KVCORE_TRANSFER_TRANSFER_H_
