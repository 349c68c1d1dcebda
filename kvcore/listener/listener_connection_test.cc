// A handler knows the connection that its request came by, and its owner hears when that has ended:
// what a client holds can end with it.
#include "kvcore/listener/listener_connection.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kvcore/listener/listener.h"
#include "kvcore/listener/listener_testing.h"

namespace kv {
namespace {

using ::testing::ElementsAre;
using testing::RawClient;
using ::testing::UnorderedElementsAre;

class ListenerConnectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
    ListenerOptions options;
    options.socket_path = root_.path() + "/s";
    options.socket_root = root_.path();
    options.ended = [this](std::int64_t connection) {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_.push_back(connection);
    };
    auto made = Listener::start(options,
                                [](const Message&) -> Result<Message> {
                                  return Message{{"at", Listener::connection()}};
                                },
                                clock_, {});
    ASSERT_TRUE(made.ok());
    listener_ = std::move(*made);
  }
  std::int64_t ask(RawClient& client) {
    client.send(Message{{"cmd", "where"}});
    const auto reply = client.reply();
    return reply ? integer_field(*reply, "at").value_or(-1) : -1;
  }
  std::vector<std::int64_t> ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }

  testing::Moments moments_;
  testing::TempDir root_;
  RealClock clock_;
  std::mutex mutex_;
  std::vector<std::int64_t> ended_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerConnectionTest, EveryRequestOfAConnectionHasItsNumberAndNobodyElseHas) {
  RawClient first, second;
  ASSERT_EQ(first.connect(listener_->socket_path()), 0);
  EXPECT_EQ(ask(first), 1);
  ASSERT_EQ(second.connect(listener_->socket_path()), 0);
  EXPECT_EQ(ask(second), 2);
  EXPECT_EQ(ask(first), 1);
  EXPECT_EQ(Listener::connection(), 0);
}

TEST_F(ListenerConnectionTest, ItsEndIsToldBeforeTheNextRequestIsHandled) {
  RawClient first, second;
  ASSERT_EQ(first.connect(listener_->socket_path()), 0);
  ASSERT_EQ(second.connect(listener_->socket_path()), 0);
  ask(first);
  ask(second);
  // Hanging up while a request of another is handled: the end is taken notice of right after it.
  moments_.hold("listener.handler.begin");
  second.send(Message{{"cmd", "where"}});
  moments_.await("listener.handler.begin", 3);
  first.close();
  moments_.open("listener.handler.begin");
  EXPECT_TRUE(second.reply().has_value());
  RawClient third;  // accepted after the end of the first was in the same round or an earlier one
  ASSERT_EQ(third.connect(listener_->socket_path()), 0);
  ask(third);
  ask(third);
  EXPECT_THAT(ended(), ElementsAre(1));
}

TEST_F(ListenerConnectionTest, TheStopEndsAllThatAreLeft) {
  RawClient first, second;
  ASSERT_EQ(first.connect(listener_->socket_path()), 0);
  ASSERT_EQ(second.connect(listener_->socket_path()), 0);
  ask(first);
  ask(second);
  EXPECT_EQ(listener_->stop(Nanos::max()), StopResult::kDone);
  EXPECT_THAT(ended(), UnorderedElementsAre(1, 2));
}

}  // namespace
}  // namespace kv
