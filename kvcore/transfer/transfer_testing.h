// What the tests of the transfer's two ends share: a producer and readers, each a process of its
// own on the model of device memory, and one socket between them.
//
// Threads: as its parts'. Ownership: a world owns all of it; readers go before the producer.
#ifndef KVCORE_TRANSFER_TRANSFER_TESTING_H_
#define KVCORE_TRANSFER_TRANSFER_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/base/clock.h"
#include "kvcore/listener/listener_testing.h"
#include "kvcore/transfer/transfer.h"
#include "kvcore/transfer/transfer_reader.h"

namespace kv::testing {

inline constexpr auto kOthers = CacheTransfer::Readers::kOthers;
inline constexpr auto kOwnWorker = CacheTransfer::Readers::kOwnWorker;

struct TransferWorld {
  TransferWorld() { start(memory); }

  void start(CacheMemory& where) {
    transfer.reset();
    auto made = CacheTransfer::start({.socket_path = socket(), .socket_root = root.path()}, where,
                                     clock, [this](Severity, std::string_view line) {
                                       const std::lock_guard<std::mutex> lock(log_mutex);
                                       log += std::string(line) + "\n";
                                     });
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    transfer = std::move(*made);
  }
  std::string socket() const { return root.path() + "/x/t0.sock"; }
  std::unique_ptr<CacheReader> reader(Vmm& vmm) {
    auto made = CacheReader::connect(socket(), vmm, clock);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  CacheTransfer::Cache build(CacheTransfer::Readers readers = kOthers) {
    const auto cache = transfer->build(kCacheUnit, readers);
    EXPECT_TRUE(cache.ok()) << cache.status().to_string();
    return cache.value_or(CacheTransfer::Cache{});
  }
  std::string logged() {
    const std::lock_guard<std::mutex> lock(log_mutex);
    return log;
  }
  // Nothing allocated, nothing open, no rule of the driver broken.
  void expect_clean() {
    EXPECT_EQ(producer_vmm.allocations(), 0u);
    EXPECT_EQ(producer_vmm.used_bytes(), 0u);
    EXPECT_EQ(reader_vmm.openings(), 0u);
    EXPECT_TRUE(producer_vmm.broken().empty()) << producer_vmm.broken().front();
    EXPECT_TRUE(reader_vmm.broken().empty()) << reader_vmm.broken().front();
  }

  Moments moments;  // first: it goes after the listener
  TempDir root;
  ManualClock clock;
  std::mutex log_mutex;
  std::string log;
  ModelVmm producer_vmm, reader_vmm;
  DriverMemory memory{producer_vmm};
  std::unique_ptr<CacheTransfer> transfer;
};

}  // namespace kv::testing

#endif  // KVCORE_TRANSFER_TRANSFER_TESTING_H_
