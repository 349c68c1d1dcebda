// Stop: the ten rules, each also with its protection left out where it has one.
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "kvcore/listener/listener.h"
#include "kvcore/listener/listener_testing.h"

namespace kv {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::frame_of;
using testing::Moments;
using testing::RawClient;
using testing::TempDir;
using testing::text_of;

constexpr Nanos kLimit = seconds(5);

class ListenerStopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "points are compiled out";
    start();
  }
  void TearDown() override { moments_.open_all(); }

  void start() {
    ListenerOptions options;
    options.socket_root = root_.path();
    options.socket_path = path_;
    auto started = Listener::start(
        options, [this](const Message& request) { return handler_(request); }, clock_, nullptr);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    listener_ = std::move(*started);
  }
  RawClient connected() {
    RawClient client;
    EXPECT_EQ(client.connect(path_), 0);
    return client;
  }
  // A client whose request is held in its handler.
  RawClient parked() {
    moments_.hold("listener.handler.begin");
    RawClient client = connected();
    client.send(request_);
    moments_.await("listener.handler.begin");
    return client;
  }
  void release() { moments_.open("listener.handler.begin"); }
  std::future<StopResult> stop_elsewhere(Nanos limit = kLimit) {
    return std::async(std::launch::async, [this, limit] { return listener_->stop(limit); });
  }
  bool socket_there() const { return std::filesystem::exists(path_); }

  TempDir root_;
  const std::string path_ = root_.path() + "/tp/w0.sock";
  const Message request_{{"cmd", "map_to_kv_tensors"}};
  Moments moments_;
  ManualClock clock_;
  std::function<Result<Message>(const Message&)> handler_ = [](const Message&) {
    return Message{{"status", "success"}};
  };
  std::unique_ptr<Listener> listener_;
};

// ---- 1, 2: the cut

TEST_F(ListenerStopTest, AStalledReadIsCutAndNothingIsDispatched) {
  for (const std::size_t sent : {0u, 2u, 4u, 9u}) {
    if (listener_ == nullptr) start();
    const std::string part = sent < 4 ? "listener.read.header" : "listener.read.body";
    RawClient client = connected();
    client.send(frame_of(request_).substr(0, sent));
    moments_.await(part, 1, std::nullopt, sent < 4 ? sent : sent - 4);
    EXPECT_EQ(listener_->stop(kLimit), StopResult::kDone);
    EXPECT_TRUE(client.ended());
    EXPECT_EQ(client.send(frame_of(request_).substr(sent)), EPIPE);
    EXPECT_TRUE(root_.empty());
    listener_.reset();
  }
  EXPECT_EQ(moments_.count("listener.dispatch"), 0u);
  EXPECT_EQ(moments_.count("clock.expired"), 0u);
}

TEST_F(ListenerStopTest, AFrameCompletedBeforeTheCutAndNotAdmittedIsDropped) {
  moments_.hold("listener.frame.complete");
  RawClient client = connected();
  client.send(request_);
  moments_.await("listener.frame.complete");
  auto stop = stop_elsewhere();
  moments_.await("listener.cut");
  moments_.open("listener.frame.complete");
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_EQ(moments_.count("listener.dispatch"), 0u);
  EXPECT_EQ(moments_.count("listener.dropped"), 1u);
  EXPECT_TRUE(client.ended());
}

TEST_F(ListenerStopTest, WithoutTheAdmissionItWouldBeDispatched) {
  moments_.skip("listener.dispatch.refuse_stopped");
  moments_.hold("listener.frame.complete");
  RawClient client = connected();
  client.send(request_);
  moments_.await("listener.frame.complete");
  auto stop = stop_elsewhere();
  moments_.await("listener.cut");
  moments_.open("listener.frame.complete");
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_GT(moments_.first("listener.dispatch"), moments_.first("listener.cut"));
}

TEST_F(ListenerStopTest, AnUndecodableFrameCompletedBeforeTheCutIsDroppedToo) {
  moments_.hold("listener.frame.complete");
  RawClient client = connected();
  client.send(*encode_frame("no pickle"));
  moments_.await("listener.frame.complete");
  auto stop = stop_elsewhere();
  moments_.await("listener.cut");
  moments_.open("listener.frame.complete");
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_EQ(moments_.count("listener.reply"), 0u);
  EXPECT_EQ(moments_.count("listener.dropped"), 1u);
}

TEST_F(ListenerStopTest, AConnectionAcceptedWhileTheFlagWasSetIsClosedUnread) {
  moments_.hold("listener.accept.done");
  RawClient client = connected();
  client.send(request_);
  moments_.await("listener.accept.done");
  auto stop = stop_elsewhere();
  moments_.await("listener.stop.draining");
  moments_.open("listener.accept.done");
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(moments_.count("listener.accepted"), 0u);
  EXPECT_EQ(moments_.count("listener.dropped"), 1u);
}

TEST_F(ListenerStopTest, WhileAHandlerIsParkedEverybodyElseIsCutAtOnce) {
  RawClient stalled = connected();
  stalled.send("\x00");
  moments_.await("listener.accepted");
  RawClient busy = parked();
  RawClient queued = connected();  // nobody accepts it now
  queued.send(request_);
  auto stop = stop_elsewhere();
  moments_.await("listener.stop.draining");
  EXPECT_TRUE(stalled.has_ended());
  EXPECT_TRUE(queued.has_ended());
  EXPECT_TRUE(busy.has_ended());
  EXPECT_EQ(RawClient().connect(path_), ECONNREFUSED);
  release();
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_EQ(moments_.count("listener.dispatch"), 1u);
}

TEST_F(ListenerStopTest, WithoutCancellingAStalledReadWaitsForTheHandler) {
  moments_.skip("listener.stop.cancel_reads");
  RawClient stalled = connected();
  moments_.await("listener.accepted");
  RawClient busy = parked();
  auto stop = stop_elsewhere();
  moments_.await("listener.stop.draining");
  EXPECT_FALSE(stalled.has_ended());
  release();
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_TRUE(stalled.ended());
}

TEST_F(ListenerStopTest, WithoutClosingTheQueueAQueuedClientWaitsForTheHandler) {
  moments_.skip("listener.stop.close_queued");
  RawClient busy = parked();
  RawClient queued = connected();
  auto stop = stop_elsewhere();
  moments_.await("listener.stop.draining");
  EXPECT_FALSE(queued.has_ended());
  release();
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_TRUE(queued.ended());
}

TEST_F(ListenerStopTest, WithoutRefusingANewClientGetsIn) {
  moments_.skip("listener.stop.refuse_new");
  RawClient busy = parked();
  auto stop = stop_elsewhere();
  moments_.await("listener.stop.draining");
  RawClient late;
  EXPECT_EQ(late.connect(path_), 0);
  release();
  EXPECT_EQ(stop.get(), StopResult::kDone);
}

// ---- 3, 4: the drain

TEST_F(ListenerStopTest, WaitsForAHandlerThatIsInside) {
  RawClient client = parked();
  auto stop = stop_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  EXPECT_TRUE(socket_there());
  release();
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_LT(moments_.first("listener.handler.end"), moments_.first("listener.stop.return"));
  EXPECT_LT(moments_.first("listener.thread.end"), moments_.first("listener.stop.return"));
  EXPECT_EQ(moments_.count("clock.expired"), 0u);
  EXPECT_TRUE(root_.empty());
}

TEST_F(ListenerStopTest, WithoutTheWaitItGivesUpBeforeTheLimit) {
  moments_.skip("listener.stop.wait_drain");
  RawClient client = parked();
  EXPECT_EQ(listener_->stop(kLimit), StopResult::kNotDrained);
  EXPECT_EQ(clock_.now(), Time());
  release();
  listener_.reset();  // its stop does not wait either
  moments_.await("listener.thread.end");
}

// ---- 5: not drained

TEST_F(ListenerStopTest, NotDrainedInTimeLeavesEverythingAndCanBeCalledAgain) {
  RawClient client = parked();
  auto stop = stop_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  clock_.set(Time(kLimit));
  EXPECT_EQ(stop.get(), StopResult::kNotDrained);
  EXPECT_TRUE(socket_there());
  EXPECT_EQ(moments_.count("listener.thread.end"), 0u);
  auto again = stop_elsewhere();
  moments_.await("clock.wait", 2, "listener.stop.drain");
  release();
  EXPECT_EQ(again.get(), StopResult::kDone);
  EXPECT_TRUE(root_.empty());
  EXPECT_THAT(moments_.values("listener.stop.return"), ElementsAre(1, 0));
  EXPECT_EQ(moments_.count("listener.cut"), 1u);
}

TEST_F(ListenerStopTest, WithoutDeferringItSaysDoneUnderTheHandler) {
  moments_.skip("listener.stop.defer");
  RawClient client = parked();
  auto stop = stop_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  clock_.set(Time(kLimit));
  EXPECT_EQ(stop.get(), StopResult::kDone);
  EXPECT_FALSE(socket_there());
  EXPECT_EQ(moments_.count("listener.handler.end"), 0u);
  listener_.reset();  // and the thread still has all it uses
  release();
  moments_.await("listener.thread.end");
  EXPECT_EQ(moments_.count("listener.handler.end"), 1u);
}

// ---- 6: an error of the clean-up

TEST_F(ListenerStopTest, AnErrorOfTheCleanUpIsFailedAndCanBeCalledAgain) {
  moments_.fail("listener.unlink", EACCES);
  Status why;
  EXPECT_EQ(listener_->stop(kLimit, &why), StopResult::kFailed);
  EXPECT_EQ(why.native(), EACCES);
  EXPECT_TRUE(socket_there());
  moments_.fail("listener.unlink", 0);
  EXPECT_EQ(listener_->stop(kLimit, &why), StopResult::kDone);
  EXPECT_TRUE(root_.empty());
  EXPECT_THAT(moments_.values("listener.stop.return"), ElementsAre(2, 0));
}

// ---- 7: several at once

TEST_F(ListenerStopTest, ASecondStopSaysDoneOnlyAfterTheFirstHasDrained) {
  RawClient client = parked();
  auto first = stop_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  auto second = stop_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.second");
  release();
  EXPECT_EQ(first.get(), StopResult::kDone);
  EXPECT_EQ(second.get(), StopResult::kDone);
  EXPECT_LT(moments_.first("listener.handler.end"), moments_.first("listener.stop.return"));
  EXPECT_EQ(moments_.count("listener.stop.draining"), 1u);
}

TEST_F(ListenerStopTest, WithoutWaitingTheSecondSaysDoneUnderTheHandler) {
  moments_.skip("listener.stop.second_waits");
  RawClient client = parked();
  auto first = stop_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  EXPECT_EQ(listener_->stop(kLimit), StopResult::kDone);
  EXPECT_EQ(moments_.count("listener.handler.end"), 0u);
  release();
  EXPECT_EQ(first.get(), StopResult::kDone);
}

TEST_F(ListenerStopTest, ASecondStopIsBoundByItsOwnLimit) {
  RawClient client = parked();
  auto first = stop_elsewhere(seconds(10));
  moments_.await("clock.wait", 1, "listener.stop.drain");
  auto second = stop_elsewhere(seconds(2));
  moments_.await("clock.wait", 1, "listener.stop.second");
  clock_.set(Time(seconds(2)));
  EXPECT_EQ(second.get(), StopResult::kNotDrained);
  release();
  EXPECT_EQ(first.get(), StopResult::kDone);
}

TEST_F(ListenerStopTest, WhenTheFirstGivesUpTheSecondGoesOn) {
  RawClient client = parked();
  auto first = stop_elsewhere(seconds(2));
  moments_.await("clock.wait", 1, "listener.stop.drain");
  auto second = stop_elsewhere(seconds(10));
  moments_.await("clock.wait", 1, "listener.stop.second");
  clock_.set(Time(seconds(2)));
  EXPECT_EQ(first.get(), StopResult::kNotDrained);
  moments_.await("clock.wait", 2, "listener.stop.drain");
  release();
  EXPECT_EQ(second.get(), StopResult::kDone);
}

TEST_F(ListenerStopTest, StopAfterDoneIsDone) {
  EXPECT_EQ(listener_->stop(kLimit), StopResult::kDone);
  listener_->begin_stop();
  EXPECT_EQ(listener_->stop(Nanos(0)), StopResult::kDone);
  EXPECT_EQ(moments_.count("listener.cut"), 1u);
}

// ---- 8: on its own thread

TEST_F(ListenerStopTest, OnItsOwnThreadItSaysNotDrainedAtOnceAndChangesNothing) {
  handler_ = [this](const Message&) {
    listener_->begin_stop();
    const StopResult result = listener_->stop(kLimit);
    EXPECT_EQ(listener_->finish_stop(kNever), StopResult::kNotDrained);
    return Message{{"status", stop_result_name(result)}};
  };
  for (int i = 0; i < 2; ++i) {
    RawClient client = connected();
    client.send(request_);
    EXPECT_EQ(text_of(client.reply(), "status"), "not_drained");
  }
  EXPECT_EQ(moments_.count("listener.cut"), 0u);
  EXPECT_EQ(moments_.count("clock.wait"), 0u);
  EXPECT_EQ(listener_->stop(kLimit), StopResult::kDone);
}

TEST_F(ListenerStopTest, WithoutThatItWaitsForItself) {
  moments_.skip("listener.stop.own_thread");
  handler_ = [this](const Message&) {
    return Message{{"status", stop_result_name(listener_->stop(kLimit))}};
  };
  RawClient client = connected();
  client.send(request_);
  moments_.await("clock.wait", 1, "listener.stop.drain");
  EXPECT_EQ(moments_.count("listener.stop.return"), 0u);
  clock_.set(Time(kLimit));
  moments_.await("listener.stop.return");
  EXPECT_THAT(moments_.values("listener.stop.return"), ElementsAre(1));
}

// ---- 10: the far side gone

using ListenerStopDeathTest = ListenerStopTest;

TEST_F(ListenerStopDeathTest, WithoutTheFlagAGonePeerEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        moments_.skip("listener.reply.survive_gone_peer");
        moments_.hold("listener.reply");
        RawClient client = connected();
        client.send(*encode_frame("no pickle"));
        moments_.await("listener.reply");
        client.close();
        moments_.open("listener.reply");
        moments_.await("listener.read.header", 1000);
      },
      ::testing::KilledBySignal(SIGPIPE), "");
}

// ---- life

TEST_F(ListenerStopTest, ItsDestructorStopsIt) {
  RawClient client = parked();
  auto destroyed = std::async(std::launch::async, [this] { listener_.reset(); });
  moments_.await("clock.wait", 1, "listener.stop.drain");
  EXPECT_TRUE(socket_there());
  release();
  destroyed.get();
  EXPECT_TRUE(root_.empty());
}

TEST_F(ListenerStopTest, AnotherCanBeStartedInItsPlace) {
  const auto generation = listener_->generation();
  EXPECT_EQ(listener_->stop(kLimit), StopResult::kDone);
  listener_.reset();
  start();
  EXPECT_EQ(listener_->generation(), generation + 1);
  RawClient client = connected();
  client.send(request_);
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
}

// Clients that come, ask and leave while it is stopped: the promise holds at every moment.
TEST_F(ListenerStopTest, UnderLoadTheOrderOfEventsHolds) {
  for (int round = 0; round < 20; ++round) {
    if (listener_ == nullptr) start();
    const std::int64_t generation = listener_->generation();
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([this] {
        while (true) {
          RawClient client;
          if (client.connect(path_) != 0) return;
          client.send(request_);
          if (!client.reply()) return;
        }
      });
    }
    const auto served = static_cast<std::size_t>(moments_.count("listener.handler.end"));
    moments_.await("listener.handler.end", served + 5);
    EXPECT_EQ(listener_->stop(kLimit), StopResult::kDone);
    for (std::thread& client : clients) client.join();
    bool cut = false;
    int inside = 0;
    for (const auto& seen : moments_.seen()) {
      if (seen.key != generation) continue;
      if (seen.name == "listener.cut") cut = true;
      if (seen.name == "listener.dispatch") {
        EXPECT_FALSE(cut);
        ++inside;
      }
      if (seen.name == "listener.handler.end") --inside;
      EXPECT_TRUE(seen.name != "listener.stop.return" || inside == 0);
    }
    listener_.reset();
  }
}

}  // namespace
}  // namespace kv
