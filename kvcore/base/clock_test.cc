#include "kvcore/base/clock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "fakes/doubles/test_hooks.h"

namespace kv {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// What a wait is about: a flag, its mutex and its condition variable.
struct Door {
  Mutex mutex;
  std::condition_variable changed;
  bool open = false;

  void unlock_it() {
    const MutexLock lock(mutex);
    open = true;
    changed.notify_all();
  }
  bool wait(Clock& clock, Time deadline, const char* what = "door") {
    MutexLock lock(mutex);
    return clock.wait(lock, changed, deadline, what, [this] { return open; });
  }
};

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void write_byte() const { EXPECT_EQ(::write(ends[1], "x", 1), 1); }
};

// Says when so many waits have begun: the moment is the clock's own note.
class WaitsBegun {
 public:
  WaitsBegun() {
    hooks_.on_reached([this](const TestHooks::Seen& seen) {
      if (seen.name != "clock.wait") return;
      const std::lock_guard<std::mutex> lock(mutex_);
      ++begun_;
      changed_.notify_all();
    });
  }
  void await(int n) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this, n] { return begun_ >= n; });
  }
  // The n-th wait, at this door, is asleep: it has noted its begin and let the mutex go.
  void await_asleep(int n, Door& door) {
    await(n);
    const MutexLock lock(door.mutex);
  }
  TestHooks& hooks() { return hooks_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  TestHooks hooks_;
};

class ManualClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  }
  static constexpr Time kStart = Time(seconds(100));
  ManualClock clock_{kStart};
  Door door_;
};

TEST_F(ManualClockTest, StandsStillAndNeverGoesBack) {
  EXPECT_EQ(clock_.now(), kStart);
  clock_.set(kStart + seconds(3));
  EXPECT_EQ(clock_.now(), kStart + seconds(3));
  clock_.set(kStart);
  EXPECT_EQ(clock_.now(), kStart + seconds(3));
}

TEST_F(ManualClockTest, AWaitForWhatIsThereDoesNotLookAtTheClock) {
  TestHooks hooks;
  door_.open = true;
  EXPECT_TRUE(door_.wait(clock_, kStart - seconds(1)));
  EXPECT_EQ(hooks.count("clock.expired"), 0u);
}

TEST_F(ManualClockTest, AWaitWhoseDeadlineIsNowExpiresAtOnceAndIsNoted) {
  TestHooks hooks;
  EXPECT_FALSE(door_.wait(clock_, kStart, "the drain"));
  using Seen = TestHooks::Seen;
  EXPECT_THAT(hooks.seen(), ::testing::ElementsAre(Seen{"clock.wait", 0, 0, "the drain"},
                                                   Seen{"clock.expired", 0, 0, "the drain"}));
}

TEST_F(ManualClockTest, SetWakesAWaitAtItsDeadlineNotBefore) {
  WaitsBegun begun;
  std::atomic<bool> over{false};
  std::thread waiter([&] {
    EXPECT_FALSE(door_.wait(clock_, kStart + seconds(5)));
    EXPECT_TRUE(over.load()) << "it ended before its deadline";
  });
  begun.await_asleep(1, door_);
  clock_.set(kStart + seconds(5) - Nanos(1));
  EXPECT_EQ(begun.hooks().count("clock.expired"), 0u);
  over = true;
  clock_.set(kStart + seconds(5));
  waiter.join();
  EXPECT_EQ(begun.hooks().count("clock.expired"), 1u);
}

TEST_F(ManualClockTest, WhatItWaitsForWakesItWhileTheClockStands) {
  WaitsBegun begun;
  std::thread limited([&] { EXPECT_TRUE(door_.wait(clock_, kStart + seconds(5))); });
  std::thread unlimited([&] { EXPECT_TRUE(door_.wait(clock_, kNever)); });
  begun.await_asleep(2, door_);
  door_.unlock_it();
  limited.join();
  unlimited.join();
  EXPECT_EQ(clock_.now(), kStart);
  EXPECT_EQ(begun.hooks().count("clock.expired"), 0u);
}

TEST_F(ManualClockTest, OneSetWakesAllWaitersThatAreDueAndNoOther) {
  constexpr int kWaiters = 24;
  WaitsBegun begun;
  std::vector<std::unique_ptr<Door>> doors;
  for (int i = 0; i < kWaiters; ++i) doors.push_back(std::make_unique<Door>());
  std::vector<std::future<bool>> ends;
  for (int i = 0; i < kWaiters; ++i) {
    ends.push_back(std::async(std::launch::async, [this, door = doors[i].get(), i] {
      return door->wait(clock_, kStart + seconds(1 + i));
    }));
  }
  begun.await(kWaiters);
  clock_.set(kStart + seconds(kWaiters / 2));
  for (int i = 0; i < kWaiters / 2; ++i) EXPECT_FALSE(ends[i].get()) << i;
  EXPECT_EQ(begun.hooks().count("clock.expired"), static_cast<std::size_t>(kWaiters / 2));
  for (int i = kWaiters / 2; i < kWaiters; ++i) doors[i]->unlock_it();
  for (int i = kWaiters / 2; i < kWaiters; ++i) EXPECT_TRUE(ends[i].get()) << i;
}

// A mutex that somebody holds for long keeps set() from that waiter, and only from that one: the
// others come and go. (Whoever holds it may be waiting for one of them.)
TEST_F(ManualClockTest, AMutexHeldElsewhereDoesNotKeepAnotherWaitFromEnding) {
  constexpr Time kDue = kStart + seconds(1);
  Door early;
  Door held;
  WaitsBegun begun;
  const auto wait_at = [&](int n, Door& door) {
    auto end = std::async(std::launch::async, [&] { return door.wait(clock_, kDue); });
    begun.await_asleep(n, door);
    return end;
  };
  auto early_end = wait_at(1, early);
  auto held_end = wait_at(2, held);
  auto other_end = wait_at(3, door_);
  std::thread mover;
  {
    const MutexLock lock(held.mutex);
    mover = std::thread([&] { clock_.set(kDue); });
    EXPECT_FALSE(early_end.get());  // so the clock has moved, and set() goes on to the held one
    door_.unlock_it();
    EXPECT_TRUE(other_end.get());
  }
  mover.join();
  EXPECT_FALSE(held_end.get());
}

// Two threads share one token; each takes it when it is there. A wait that had to make room for a
// set() must look again before it answers, and must not call itself expired when it is not.
TEST_F(ManualClockTest, ItsAnswerIsTrueWhenItReturnsAlsoWhileTheClockMoves) {
  struct Token {
    Mutex mutex;
    std::condition_variable changed;
    bool there = false;
  } token;
  constexpr int kRounds = 300;
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    for (std::int64_t i = 1; !stop.load(); ++i) clock_.set(kStart + Nanos(i));
  });
  const auto taker = [&] {
    int taken = 0;
    while (taken < kRounds) {
      MutexLock lock(token.mutex);
      const Time deadline = clock_.now() + Nanos(3);
      const bool got =
          clock_.wait(lock, token.changed, deadline, "token", [&] { return token.there; });
      EXPECT_EQ(got, token.there);
      if (!got) {
        EXPECT_GE(clock_.now(), deadline);
      } else {
        token.there = false;
        token.changed.notify_all();
        ++taken;
      }
    }
  };
  std::thread one(taker);
  std::thread two(taker);
  for (int i = 0; i < 2 * kRounds; ++i) {
    MutexLock lock(token.mutex);
    clock_.wait(lock, token.changed, kNever, "room", [&] { return !token.there; });
    token.there = true;
    token.changed.notify_all();
  }
  one.join();
  two.join();
  stop = true;
  mover.join();
}

// Mutex and condition variable may go as soon as the wait has returned, also when it returned for
// another reason while set() was on its way to them. The sanitizers see it when they are touched.
TEST_F(ManualClockTest, SetTouchesNothingOfAWaitThatHasReturned) {
  for (int i = 1; i <= 50; ++i) {
    const Time due = kStart + Nanos(i);
    auto door = std::make_unique<Door>();
    std::thread mover;
    {
      MutexLock lock(door->mutex);
      EXPECT_TRUE(clock_.wait(lock, door->changed, due, "door", [&] {
        // With the mutex held, until set() has moved the clock and wants that mutex: of this only
        // the clock itself tells.
        if (!mover.joinable()) mover = std::thread([&] { clock_.set(due); });
        while (clock_.now() < due) std::this_thread::yield();
        return true;
      }));
    }
    door.reset();
    mover.join();
  }
}

TEST_F(ManualClockTest, PollSaysWhatTheDescriptorHas) {
  TestHooks hooks;
  const Pipe pipe;
  pipe.write_byte();
  EXPECT_EQ(clock_.poll(pipe.ends[0], POLLIN, kStart - seconds(1), "pipe"), POLLIN);
  EXPECT_EQ(hooks.count("clock.expired"), 0u);
}

TEST_F(ManualClockTest, PollEndsAtItsDeadline) {
  const Pipe pipe;
  WaitsBegun begun;
  auto end = std::async(std::launch::async, [&] {
    return clock_.poll(pipe.ends[0], POLLIN, kStart + seconds(60), "pipe");
  });
  begun.await(1);
  clock_.set(kStart + seconds(59));
  EXPECT_EQ(begun.hooks().count("clock.expired"), 0u);
  clock_.set(kStart + seconds(60));
  EXPECT_EQ(end.get(), 0);
  EXPECT_EQ(begun.hooks().count("clock.expired"), 1u);
}

TEST_F(ManualClockTest, PollWakesWhenTheDescriptorGetsReadyWhileTheClockStands) {
  const Pipe pipe;
  WaitsBegun begun;
  auto end = std::async(std::launch::async,
                        [&] { return clock_.poll(pipe.ends[0], POLLIN, kNever, "pipe"); });
  begun.await(1);
  pipe.write_byte();
  EXPECT_EQ(end.get(), POLLIN);
}

TEST_F(ManualClockTest, PollLeavesNoDescriptorOpen) {
  const Pipe pipe;
  const int before = ::dup(pipe.ends[0]);
  ::close(before);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(clock_.poll(pipe.ends[0], POLLIN, kStart, "pipe"), 0);
  const int after = ::dup(pipe.ends[0]);
  ::close(after);
  EXPECT_EQ(before, after);
}

TEST(RealClockTest, IsTheKernelsMonotonicClock) {
  const RealClock clock;
  timespec now{};
  ASSERT_EQ(::clock_gettime(CLOCK_MONOTONIC, &now), 0);
  const Time first = clock.now();
  EXPECT_GE(first, Time(seconds(now.tv_sec) + Nanos(now.tv_nsec)));
  EXPECT_GE(clock.now(), first);
}

TEST(RealClockTest, AWaitEndsByWhatItWaitsFor) {
  RealClock clock;
  Door door;
  auto limited =
      std::async(std::launch::async, [&] { return door.wait(clock, clock.now() + hours(1)); });
  auto unlimited = std::async(std::launch::async, [&] { return door.wait(clock, kNever); });
  door.unlock_it();
  EXPECT_TRUE(limited.get());
  EXPECT_TRUE(unlimited.get());
}

TEST(RealClockTest, AWaitWhoseDeadlineHasPassedExpiresAndIsNoted) {
  if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  TestHooks hooks;
  RealClock clock;
  Door door;
  const Time deadline = clock.now() + std::chrono::milliseconds(1);
  EXPECT_FALSE(door.wait(clock, deadline));
  EXPECT_GE(clock.now(), deadline);
  EXPECT_EQ(hooks.count("clock.expired"), 1u);
}

TEST(RealClockTest, PollGivesEventsOrNothingAtItsDeadline) {
  RealClock clock;
  const Pipe pipe;
  const Time deadline = clock.now() + std::chrono::milliseconds(1);
  EXPECT_EQ(clock.poll(pipe.ends[0], POLLIN, deadline, "pipe"), 0);
  EXPECT_GE(clock.now(), deadline);
  EXPECT_EQ(clock.poll(pipe.ends[0], POLLIN, clock.now() - hours(1), "pipe"), 0);
  pipe.write_byte();
  EXPECT_EQ(clock.poll(pipe.ends[0], POLLIN, clock.now() - hours(1), "pipe"), POLLIN);
  EXPECT_EQ(clock.poll(pipe.ends[0], POLLIN, kNever, "pipe"), POLLIN);
}

TEST(RealClockTest, PollOfAClosedDescriptorSaysSoAtOnce) {
  RealClock clock;
  int closed = -1;
  {
    const Pipe pipe;
    closed = pipe.ends[0];
  }
  EXPECT_EQ(clock.poll(closed, POLLIN, kNever, "pipe"), POLLNVAL);
}

}  // namespace
}  // namespace kv
