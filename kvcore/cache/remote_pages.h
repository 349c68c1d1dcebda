// Pages of workers that hold the memory, for the process that commands them: a map or unmap goes to
// the workers of all ranks and stages at once, and is done on all of them or undone.
//
// A worker whose reply does not come is asked once more within the limit: all requests used here
// are idempotent. If that brings none either, and a map may have been carried out, it is undone
// there as on the others; where that is not confirmed nobody knows what the worker's pages are, and
// they are kQuarantined. An error names the rank, the stage and the worker's own words.
//
// Threads: as PageBackend's; unmaps go one after the other, since a worker has one of them pending
// at a time. Calls block for as long as the exchanges take, each bounded by the limit.
// Ownership: borrows the clock; connections live as long as an exchange.
#ifndef KVCORE_CACHE_REMOTE_PAGES_H_
#define KVCORE_CACHE_REMOTE_PAGES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kvcore/base/clock.h"
#include "kvcore/base/status.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/cache/page_backend.h"
#include "kvcore/wire/client.h"
#include "kvcore/wire/message.h"

namespace kv {

struct RemoteOptions {
  std::int64_t group = 0;
  std::size_t page_bytes = 0;
  // How the names of its transactions begin. Nobody else who speaks to these workers, before,
  // beside or after it, may have the same: they remember transactions that have ended.
  std::string name;
  Client::Options
      client;  // its timeout bounds one exchange with all workers, asking again included
};

class RemotePages final : public PageBackend {
 public:
  RemotePages(Clock& clock, std::vector<Peer> workers, RemoteOptions options);

  // All pages of a batch end alike. kOutOfMemory: a worker says so, and nothing is mapped anywhere.
  Done map(const std::vector<std::int64_t>& pages) override;
  // Failure: the pages are mapped everywhere (those that some had unmapped already, with other
  // bytes), or quarantined.
  Done unmap(const std::vector<std::int64_t>& pages) override KV_EXCLUDES(mutex_);

 private:
  using Offsets = std::vector<std::int64_t>;
  using Workers = std::vector<std::size_t>;  // by their place in workers_

  enum class Outcome : std::uint8_t {
    kDone,
    kRefused,    // it failed and has changed nothing
    kDisagrees,  // the request does not fit the worker's books; it has changed nothing
    kSetAside,   // the worker has quarantined pages
    kNotAsked,   // it cannot be reached, and surely did nothing
    kUnknown,
  };
  struct Answer {
    std::size_t worker = 0;
    Outcome outcome = Outcome::kDone;
    Status status;    // fine: done
    Offsets changed;  // by a map that is done
  };
  using Answers = std::vector<Answer>;

  Offsets offsets_of(const std::vector<std::int64_t>& pages) const;
  Message request(std::string_view command) const;
  Message request(std::string_view command, const Offsets& offsets) const;
  static Message with(Message message, std::string_view key, Value value);
  Answers ask(const Workers& workers, const Message& message) const;
  Answer judge(std::size_t worker, const Message& message, const Result<Message>& reply) const;
  // The first failure; fine when there is none.
  static Status failure(const Answers& answers);
  static Workers those(const Answers& answers, std::initializer_list<Outcome> outcomes);
  Done ended(const char* operation, const Offsets& pages, PageMap state, const Status& cause) const;

  // Unmaps what a map did. False: not everywhere.
  bool take_back(const Answers& mapped) KV_EXCLUDES(mutex_);
  std::string begin_transaction() KV_REQUIRES(mutex_);
  // Ends transactions that may be pending still, so that others can begin.
  Status settle() KV_REQUIRES(mutex_);
  void abort(const Workers& workers, const std::string& transaction) KV_REQUIRES(mutex_);
  // The second half of an unmap that is prepared everywhere. `state`: how the pages ended.
  Status commit(const Offsets& offsets, const std::string& transaction, PageMap* state)
      KV_REQUIRES(mutex_);

  Clock& clock_;
  const std::vector<Peer> workers_;
  const RemoteOptions options_;
  const Workers all_;

  Mutex mutex_;
  std::int64_t transactions_ KV_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> pending_ KV_GUARDED_BY(mutex_);  // of each worker; empty: none
};

}  // namespace kv

#endif  // KVCORE_CACHE_REMOTE_PAGES_H_
