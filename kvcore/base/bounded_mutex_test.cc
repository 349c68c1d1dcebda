#include "kvcore/base/bounded_mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace kv {
namespace {

using namespace std::chrono_literals;

TEST(BoundedMutex, OneAtATime) {
  BoundedMutex mutex;
  int counted = 0;
  const auto count = [&] {
    for (int i = 0; i < 10'000; ++i) {
      const BoundedLock lock(mutex);
      ++counted;
    }
  };
  std::thread other(count);
  count();
  other.join();
  EXPECT_EQ(counted, 20'000);
}

TEST(BoundedMutex, WaitsByTheClockThatItIsGiven) {
  BoundedMutex mutex;
  ManualClock clock;
  mutex.lock();
  bool got = true;
  std::thread other([&] { got = mutex.lock(clock, Time(5s), "test"); });
  clock.set(Time(5s));
  other.join();
  EXPECT_FALSE(got);
  mutex.unlock();
  ASSERT_TRUE(mutex.lock(clock, Time(5s), "test")) << "free: the time does not matter";
  mutex.unlock();
}

TEST(BoundedMutex, ComesWhenItIsLetGo) {
  BoundedMutex mutex;
  ManualClock clock;
  mutex.lock();
  bool got = false;
  std::thread other([&] {
    got = mutex.lock(clock, kNever, "test");
    if (got) mutex.unlock();
  });
  mutex.unlock();
  other.join();
  EXPECT_TRUE(got);
}

}  // namespace
}  // namespace kv
