// What a framework does with tensors that are shared over CUDA IPC, as far as it went wrong for
// caches: every share counts one, whether it is ever opened or not, and nothing but a word that
// nobody has it takes that back; memory freed before that goes to the limbo and stays allocated,
// and at the end of the process the framework looks through the limbo when the records in it are
// freed already. Whether that look is deadly, the heap decides. (In the framework, a reader that
// opened a share by the framework says that word for it when it lets go. Readers here open by the
// driver, so the process that shared says it.)
//
// Threads: all members from any thread, but at_exit() when no other runs any more.
// Ownership: owns what was allocated until it is freed or the process ends; borrows the Vmm.
#ifndef FAKES_LIMBO_LIMBO_H_
#define FAKES_LIMBO_LIMBO_H_

#include <cstddef>
#include <map>
#include <utility>

#include "kvcore/base/log.h"
#include "kvcore/base/thread_annotations.h"
#include "kvcore/driver/vmm.h"
#include "kvcore/transfer/transfer.h"

namespace kv {

class Limbo final : public CacheMemory {
 public:
  Limbo(Vmm& vmm, LogSink log) : vmm_(vmm), log_(std::move(log)) {}
  ~Limbo() override;  // makes no driver call
  Limbo(const Limbo&) = delete;
  Limbo& operator=(const Limbo&) = delete;

  Result<DeviceAddress> allocate(std::size_t bytes) override KV_EXCLUDES(mu_);
  // With shares that were not taken back: it succeeds, and the memory is in the limbo.
  Status free(DeviceAddress address) override KV_EXCLUDES(mu_);
  Result<ShareHandle> share(DeviceAddress address) override KV_EXCLUDES(mu_);
  // Takes one share back. Memory in the limbo is given back with the last; the driver's refusal:
  // it stays there. kInvalidArgument: no share of it is out.
  Status unshare(DeviceAddress address) override KV_EXCLUDES(mu_);

  // Bytes in the limbo.
  std::size_t kept() const KV_EXCLUDES(mu_);
  // The end of the process: warns if the limbo is not empty, frees its records, reads them.
  // Returns the bytes that it read there.
  std::size_t at_exit() KV_EXCLUDES(mu_);

 private:
  struct Record;
  struct Tensor {
    std::size_t bytes = 0;
    int shares = 0;
    Record* record = nullptr;  // in the limbo
  };

  using Tensors = std::map<DeviceAddress, Tensor>;

  Status give_back(Tensors::node_type tensor) KV_EXCLUDES(mu_);

  Vmm& vmm_;
  const LogSink log_;
  mutable Mutex mu_;
  Tensors tensors_ KV_GUARDED_BY(mu_);
};

}  // namespace kv

#endif  // FAKES_LIMBO_LIMBO_H_
