// What the roles `producer` and `reader` have beside the runtime: caches in the framework's memory
// with a transfer that shares them, and connections to the producers whose caches are read.
//
// Threads: all members from any thread; readers are used one call at a time.
// Ownership: lives as long as the process, like the runtime whose memory it uses.
#ifndef FAKES_WORKER_CACHES_H_
#define FAKES_WORKER_CACHES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fakes/limbo/limbo.h"
#include "fakes/worker/options.h"
#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/driver/vmm.h"
#include "kvcore/listener/listener.h"
#include "kvcore/transfer/transfer.h"
#include "kvcore/transfer/transfer_reader.h"

namespace kv::worker {

class Caches {
 public:
  Caches(Vmm& vmm, Clock& clock, LogSink log, const RuntimeConfig& config);

  // Listens for readers, with the caches in the framework's memory or in the driver's.
  Status start_transfer(bool framework);
  const std::string& socket() const { return socket_; }
  // The transfer; throws std::runtime_error in a process that is no producer.
  CacheTransfer& transfer();

  // Calls `use` with the connection to the producer of this rank, which is made at the first use.
  Status with_reader(std::int64_t rank, const std::function<Status(CacheReader&)>& use);

  // Readers release, caches are dropped, the transfer stops.
  StopResult close();
  // The framework's end: see Limbo.
  void framework_ends();

 private:
  Vmm& vmm_;
  Clock& clock_;
  const LogSink log_;
  const RuntimeConfig config_;
  Limbo limbo_;
  DriverMemory driver_;
  std::string socket_;
  std::unique_ptr<CacheTransfer> transfer_;
  std::mutex mutex_;
  std::map<std::int64_t, std::unique_ptr<CacheReader>> readers_;
};

// The value that the stamp of a page has: 8 bytes at its start.
std::int64_t page_stamp(std::int64_t value, std::size_t page);
// Writes the stamps of all pages of a cache; reads them and says which one is wrong.
Status write_stamps(Vmm& vmm, DeviceAddress address, std::size_t bytes, std::int64_t value);
Status verify_stamps(Vmm& vmm, DeviceAddress address, std::size_t bytes, std::int64_t value);

}  // namespace kv::worker

#endif  // FAKES_WORKER_CACHES_H_
