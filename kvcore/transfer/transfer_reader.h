// The other end of a transfer (transfer.h): opens caches of one producer in this process, under
// leases that live as long as the connection to it. Reading is the caller's, by Vmm's copies.
//
// The producer's death, as that of the connection, ends the leases, not the reading: what is open
// stays readable until it is released, for whoever asks for it so; open() and view() say that its
// producer is gone. A producer that came back is another one, with other caches of the same
// numbers, and is connected to when nothing of the one before is held any more.
//
// Threads: one call at a time; different objects in parallel.
// Ownership: owns the connection and the openings. The destructor makes no driver call: release
// first. Vmm and clock outlive it.
#ifndef KVCORE_TRANSFER_TRANSFER_READER_H_
#define KVCORE_TRANSFER_TRANSFER_READER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kvcore/base/clock.h"
#include "kvcore/base/status.h"
#include "kvcore/base/unique_fd.h"
#include "kvcore/driver/vmm.h"
#include "kvcore/wire/message.h"

namespace kv {

class CacheReader {
 public:
  struct View {
    DeviceAddress address = 0;  // here; every opening of a cache has the same
    std::size_t bytes = 0;
    std::int64_t generation = 0;  // of the producer: the same number of another is another cache
  };

  // `timeout`: of each exchange; 0 or less: no bound. kUnavailable: nobody listens there.
  static Result<std::unique_ptr<CacheReader>> connect(const std::string& socket_path, Vmm& vmm,
                                                      Clock& clock,
                                                      Nanos timeout = std::chrono::seconds(60));

  // Opened again, it is counted here: one lease, one opening of the driver.
  // kFailedPrecondition: the producer refuses, its words are the text (no such cache, local, being
  // dropped). kUnavailable: it is gone, or another one has come, and what is held of it is to be
  // released first. kUnavailable, kDeadline, kProtocol in an exchange: as Client's; the connection
  // is then given up. Otherwise the driver's refusal. On failure nothing more is open or leased.
  Result<View> open(std::int64_t cache);
  // For reading under the lease. kNotFound: not open. kUnavailable: the lease has ended with the
  // producer, or with the connection.
  Result<View> view(std::int64_t cache) const;
  // For reading what may have lost its producer: the bytes are as they were. kNotFound: not open.
  Result<View> orphan(std::int64_t cache) const;
  // The last of as many as were opened closes the memory, then gives the lease back. A producer
  // that is gone has no lease to be given back. kNotFound: not open. The driver's refusal: still
  // open, call again. Any other error: closed, and the lease ends with the connection.
  Status release(std::int64_t cache);
  // All that is open; goes on after a failure and says the first one.
  Status release_all();

  std::size_t open_caches() const { return open_.size(); }

 private:
  struct Opening {
    View view;
    std::int64_t count = 0;
  };

  CacheReader(std::string path, UniqueFd fd, Vmm& vmm, Clock& clock, Nanos timeout)
      : path_(std::move(path)), fd_(std::move(fd)), vmm_(vmm), clock_(clock), timeout_(timeout) {}
  Result<View> open_first(std::int64_t cache);
  Result<View> open_offered(std::int64_t cache, const Message& reply);
  // The producer's end of the connection is open.
  bool connected() const;
  Status connect_anew();
  Status check_lease(const char* operation, std::int64_t cache) const;
  // The reply's fields, if it says success.
  Result<Message> ask(const char* command, std::int64_t cache);
  Result<Message> exchange(const Message& request);
  Status send(const std::string& frame, Time deadline);
  Result<Message> receive(Time deadline);

  const std::string path_;
  UniqueFd fd_;  // empty once the connection is given up
  Vmm& vmm_;
  Clock& clock_;
  const Nanos timeout_;
  std::map<std::int64_t, Opening> open_;
};

}  // namespace kv

#endif  // KVCORE_TRANSFER_TRANSFER_READER_H_
