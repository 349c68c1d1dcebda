// The producer's end: who is shared, what a drop waits for, what is freed when, and that no failure
// of the driver loses memory.
#include "kvcore/transfer/transfer.h"

#include <gmock/gmock.h>

#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "fakes/doubles/mock_vmm.h"
#include "kvcore/transfer/transfer_testing.h"

namespace kv {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::InSequence;
using testing::kHang;
using testing::kOthers;
using testing::kOwnWorker;
using testing::RawClient;
using ::testing::Return;
using ::testing::StrictMock;
using testing::text_of;
using testing::TransferWorld;

constexpr Nanos kLimit = std::chrono::seconds(5);

class TransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  }
  // A drop on a thread of its own.
  std::future<StopResult> drop(std::int64_t id) {
    return std::async(std::launch::async, [this, id] { return transfer().drop(id); });
  }
  static StopResult result(std::future<StopResult>& future) {
    if (future.wait_for(kHang) != std::future_status::ready) ADD_FAILURE() << "it hangs";
    return future.get();
  }
  static Message request(const char* command, std::int64_t cache) {
    return {{"cmd", command}, {"cache", cache}};
  }
  // The reply's status, with its message if it is an error.
  std::string ask(RawClient& client, const Message& message) {
    client.send(message);
    const auto reply = client.reply();
    const std::string status = text_of(reply, "status");
    return status == "success" ? status : status + ": " + text_of(reply, "message");
  }
  CacheTransfer& transfer() { return *world_.transfer; }

  TransferWorld world_;
};

TEST_F(TransferTest, ACacheOfItsOwnWorkerIsNeverSharedAndNeverOpened) {
  const auto cache = world_.build(kOwnWorker);
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  EXPECT_THAT(ask(client, request("open_cache", cache.id)), HasSubstr("local to its worker"));
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
  EXPECT_THAT(world_.producer_vmm.calls(), ElementsAre("allocate", "free"));
}

TEST_F(TransferTest, ACacheThatOthersReadIsSharedOnceHoweverManyReadIt) {
  const auto cache = world_.build();
  RawClient first, second;
  ASSERT_EQ(first.connect(world_.socket()), 0);
  ASSERT_EQ(second.connect(world_.socket()), 0);
  for (RawClient* client : {&first, &second, &first}) {
    EXPECT_EQ(ask(*client, request("open_cache", cache.id)), "success");
  }
  EXPECT_EQ(transfer().leases(cache.id), 2u);
  for (RawClient* client : {&first, &second}) {
    EXPECT_EQ(ask(*client, request("release_cache", cache.id)), "success");
  }
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
  EXPECT_THAT(world_.producer_vmm.calls(), ElementsAre("allocate", "share", "free"));
}

TEST_F(TransferTest, ALeaseIsReleasedOnlyByItsOwnConnection) {
  const auto cache = world_.build();
  RawClient holder, other;
  ASSERT_EQ(holder.connect(world_.socket()), 0);
  ASSERT_EQ(other.connect(world_.socket()), 0);
  EXPECT_EQ(ask(holder, request("open_cache", cache.id)), "success");
  EXPECT_THAT(ask(other, request("release_cache", cache.id)), HasSubstr("has no lease"));
  EXPECT_EQ(transfer().leases(cache.id), 1u);
}

TEST_F(TransferTest, WhatIsNoRequestIsRefusedInWords) {
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  EXPECT_THAT(ask(client, {{"cmd", "open_cache"}}), HasSubstr("cache"));
  EXPECT_THAT(ask(client, {{"cmd", "dance"}, {"cache", 1}}), HasSubstr("dance"));
  EXPECT_THAT(ask(client, request("open_cache", 7)), HasSubstr("cache 7"));
}

TEST_F(TransferTest, SizesThatADriverMayLayIntoOneBlockAreRefused) {
  for (const std::size_t bytes : {std::size_t{0}, kCacheUnit - 1, kCacheUnit + 4096}) {
    EXPECT_EQ(transfer().build(bytes, kOthers).status().code(), Code::kInvalidArgument) << bytes;
  }
  EXPECT_TRUE(world_.producer_vmm.calls().empty());
}

TEST_F(TransferTest, ADropWaitsForTheLastReaderAndThenFrees) {
  const auto cache = world_.build();
  RawClient first, second;
  ASSERT_EQ(first.connect(world_.socket()), 0);
  ASSERT_EQ(second.connect(world_.socket()), 0);
  ask(first, request("open_cache", cache.id));
  ask(second, request("open_cache", cache.id));
  auto dropped = drop(cache.id);
  world_.moments.await("clock.wait", 1, "transfer.drain");
  EXPECT_EQ(ask(first, request("release_cache", cache.id)), "success");
  EXPECT_EQ(world_.producer_vmm.allocations(), 1u);
  EXPECT_EQ(ask(second, request("release_cache", cache.id)), "success");
  EXPECT_EQ(result(dropped), StopResult::kDone);
  EXPECT_EQ(world_.producer_vmm.allocations(), 0u);
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);  // as it was
}

TEST_F(TransferTest, ADyingReaderEndsItsLeaseWithItsConnection) {
  const auto cache = world_.build();
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  ask(client, request("open_cache", cache.id));
  auto dropped = drop(cache.id);
  world_.moments.await("clock.wait", 1, "transfer.drain");
  client.close();
  EXPECT_EQ(result(dropped), StopResult::kDone);
  world_.expect_clean();
}

TEST_F(TransferTest, AfterTheLimitNothingIsFreedAndALaterDropFinishes) {
  const auto cache = world_.build();
  RawClient client, late;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  ASSERT_EQ(late.connect(world_.socket()), 0);
  ask(client, request("open_cache", cache.id));
  auto dropped = drop(cache.id);
  world_.moments.await("clock.wait", 1, "transfer.drain");
  world_.clock.set(Time(kLimit));
  EXPECT_EQ(result(dropped), StopResult::kNotDrained);
  EXPECT_THAT(world_.logged(), HasSubstr("cache 1: not drained"));
  EXPECT_EQ(world_.producer_vmm.allocations(), 1u);
  EXPECT_TRUE(transfer().find(cache.id).ok());
  EXPECT_THAT(ask(late, request("open_cache", cache.id)), HasSubstr("being dropped"));
  EXPECT_EQ(ask(client, request("release_cache", cache.id)), "success");
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
  world_.expect_clean();
}

TEST_F(TransferTest, NoReaderGetsInBetweenTheDrainAndTheFree) {
  const auto cache = world_.build();
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  std::string said;
  world_.moments.at("transfer.drop.wait_readers.done",
                    [&] { said = ask(client, request("open_cache", cache.id)); });
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
  EXPECT_THAT(said, HasSubstr("being dropped"));
}

TEST_F(TransferTest, TheSecondOfTwoDropsWaitsForTheFirst) {
  const auto cache = world_.build();
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  ask(client, request("open_cache", cache.id));
  auto first = drop(cache.id);
  world_.moments.await("clock.wait", 1, "transfer.drain");
  auto second = drop(cache.id);
  world_.moments.await("clock.wait", 1, "transfer.drop.second");
  client.close();
  EXPECT_EQ(result(first), StopResult::kDone);
  EXPECT_EQ(result(second), StopResult::kDone);
  world_.expect_clean();
}

TEST_F(TransferTest, FromItsOwnThreadNothingCanBeDrained) {
  const auto cache = world_.build();
  std::optional<StopResult> dropped, ended;
  world_.moments.at("listener.handler.begin", [&] {
    dropped = transfer().drop(cache.id);
    ended = transfer().shutdown();
  });
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  EXPECT_EQ(ask(client, request("open_cache", cache.id)), "success");
  EXPECT_EQ(dropped, StopResult::kNotDrained);
  EXPECT_EQ(ended, StopResult::kNotDrained);
}

TEST_F(TransferTest, ANumberThatNeverWasACacheIsAMistake) {
  Status why;
  EXPECT_EQ(transfer().drop(9, &why), StopResult::kFailed);
  EXPECT_EQ(why.code(), Code::kNotFound);
  EXPECT_EQ(transfer().find(9).status().code(), Code::kNotFound);
}

TEST_F(TransferTest, ShutdownDropsAllUnderOneLimitAndThenStopsListening) {
  const auto held = world_.build();
  const auto also_held = world_.build();
  world_.build(kOwnWorker);
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  ask(client, request("open_cache", held.id));
  ask(client, request("open_cache", also_held.id));
  auto stopped = std::async(std::launch::async, [this] { return transfer().shutdown(); });
  world_.moments.await("clock.wait", 1, "transfer.drain");
  world_.clock.set(Time(kLimit));
  EXPECT_EQ(result(stopped), StopResult::kNotDrained);
  EXPECT_EQ(world_.producer_vmm.allocations(), 2u);
  EXPECT_EQ(transfer().build(kCacheUnit, kOthers).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(ask(client, request("release_cache", held.id)), "success");  // it still listens
  client.close();
  world_.moments.await("transfer.lease.end", 2);
  EXPECT_EQ(transfer().shutdown(), StopResult::kDone);
  EXPECT_EQ(transfer().shutdown(), StopResult::kDone);
  EXPECT_TRUE(world_.root.empty());
  world_.expect_clean();
}

// ---- the driver's calls

class MemoryDouble : public CacheMemory {
 public:
  MOCK_METHOD(Result<DeviceAddress>, allocate, (std::size_t bytes), (override));
  MOCK_METHOD(Status, free, (DeviceAddress address), (override));
  MOCK_METHOD(Result<ShareHandle>, share, (DeviceAddress address), (override));
  MOCK_METHOD(Status, unshare, (DeviceAddress address), (override));
};

TEST_F(TransferTest, AShareIsTakenBackOnceAndBeforeTheFree) {
  StrictMock<MemoryDouble> memory;
  world_.start(memory);
  const Status refused = Status::error(Code::kDriver, "free", "", 999);
  const InSequence in_order;
  EXPECT_CALL(memory, allocate(kCacheUnit)).WillOnce(Return(DeviceAddress{64}));
  EXPECT_CALL(memory, share(64)).WillOnce(Return(ShareHandle{}));
  EXPECT_CALL(memory, unshare(64)).WillOnce(Return(refused)).WillOnce(Return(Status()));
  EXPECT_CALL(memory, free(64)).WillOnce(Return(refused)).WillOnce(Return(Status()));
  const auto cache = world_.build();
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  ask(client, request("open_cache", cache.id));
  ask(client, request("release_cache", cache.id));
  for (int refusals = 0; refusals < 2; ++refusals) {  // of the unshare, of the free
    Status why;
    EXPECT_EQ(transfer().drop(cache.id, &why), StopResult::kFailed);
    EXPECT_EQ(why.native(), 999);
  }
  EXPECT_THAT(world_.logged(), HasSubstr("cache 1: not freed"));
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
}

TEST_F(TransferTest, WhatNobodyAsksForIsNeverShared) {
  StrictMock<MemoryDouble> memory;
  world_.start(memory);
  EXPECT_CALL(memory, allocate(_)).WillOnce(Return(DeviceAddress{64}));
  EXPECT_CALL(memory, free(64)).WillOnce(Return(Status()));
  EXPECT_EQ(transfer().drop(world_.build().id), StopResult::kDone);
}

TEST_F(TransferTest, AFailedShareIsToldToItsReaderAndTriedAgainForTheNext) {
  const auto cache = world_.build();
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  world_.producer_vmm.fault = [](const std::string& call, int) { return call == "share" ? 2 : 0; };
  EXPECT_THAT(ask(client, request("open_cache", cache.id)), HasSubstr("out_of_memory"));
  EXPECT_EQ(transfer().leases(cache.id), 0u);
  world_.producer_vmm.fault = nullptr;
  EXPECT_EQ(ask(client, request("open_cache", cache.id)), "success");
  EXPECT_EQ(ask(client, request("release_cache", cache.id)), "success");
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
  EXPECT_THAT(world_.producer_vmm.calls(), ElementsAre("allocate", "share", "share", "free"));
  world_.expect_clean();
}

TEST_F(TransferTest, ADropThatComesWhileItIsBeingSharedTakesTheShareBack) {
  StrictMock<MemoryDouble> memory;
  world_.start(memory);
  std::future<StopResult> late, dropped;
  const InSequence in_order;
  EXPECT_CALL(memory, allocate(_)).WillOnce(Return(DeviceAddress{64}));
  EXPECT_CALL(memory, share(64)).WillOnce([&](DeviceAddress) {
    late = drop(1);
    world_.moments.await("clock.wait", 1, "transfer.drop.second");
    world_.clock.set(Time(kLimit));
    EXPECT_EQ(result(late), StopResult::kNotDrained);
    dropped = drop(1);
    world_.moments.await("clock.wait", 2, "transfer.drop.second");
    return Result<ShareHandle>(ShareHandle{});
  });
  EXPECT_CALL(memory, unshare(64)).WillOnce(Return(Status()));
  EXPECT_CALL(memory, free(64)).WillOnce(Return(Status()));
  const auto cache = world_.build();
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  EXPECT_THAT(ask(client, request("open_cache", cache.id)), HasSubstr("being dropped"));
  EXPECT_EQ(result(dropped), StopResult::kDone);
}

TEST_F(TransferTest, WhatIsStillBeingBuiltIsNotThereAndAShutdownMeanwhileGivesItBack) {
  StrictMock<MemoryDouble> memory;
  world_.start(memory);
  RawClient client;
  ASSERT_EQ(client.connect(world_.socket()), 0);
  std::future<StopResult> stopped;
  const InSequence in_order;
  EXPECT_CALL(memory, allocate(_)).WillOnce([&](std::size_t) {
    EXPECT_EQ(transfer().find(1).status().code(), Code::kNotFound);
    EXPECT_THAT(ask(client, request("open_cache", 1)), HasSubstr("there is none"));
    stopped = std::async(std::launch::async, [this] { return transfer().shutdown(); });
    world_.moments.await("clock.wait", 1, "transfer.drop.second");
    return Result<DeviceAddress>(DeviceAddress{64});
  });
  EXPECT_CALL(memory, free(64)).WillOnce(Return(Status()));
  EXPECT_EQ(transfer().build(kCacheUnit, kOthers).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(result(stopped), StopResult::kDone);
}

TEST_F(TransferTest, EveryProducerHasAGenerationOfItsOwn) {
  const std::int64_t first = transfer().generation();
  world_.start(world_.memory);
  EXPECT_GT(first, 0);
  EXPECT_GT(transfer().generation(), 0);
  EXPECT_NE(transfer().generation(), first);
}

// Two caches are built, read and dropped while the driver refuses one call, and in a second round
// that one and all after it: whatever fails, one shutdown afterwards leaves nothing.
TEST_F(TransferTest, WhicheverDriverCallFailsNothingIsLostForGood) {
  for (const bool always : {false, true}) {
    for (int index = 0;; ++index) {
      bool fired = false;
      world_.start(world_.memory);
      world_.producer_vmm.start_counting();
      world_.producer_vmm.fault = [&](const std::string&, int number) {
        const bool now = always ? number >= index : number == index;
        fired = fired || now;
        return now ? 999 : 0;
      };
      const auto local = transfer().build(kCacheUnit, kOwnWorker);
      const auto shared = transfer().build(kCacheUnit, kOthers);
      if (shared.ok()) {
        RawClient client;
        ASSERT_EQ(client.connect(world_.socket()), 0);
        ask(client, request("open_cache", shared->id));
        ask(client, request("release_cache", shared->id));
      }
      if (local.ok()) static_cast<void>(transfer().drop(local->id));
      if (shared.ok()) static_cast<void>(transfer().drop(shared->id));
      world_.producer_vmm.fault = nullptr;
      EXPECT_EQ(transfer().shutdown(), StopResult::kDone) << index;
      world_.expect_clean();
      if (!fired) break;
      ASSERT_LT(index, 100);
    }
  }
}

}  // namespace
}  // namespace kv
