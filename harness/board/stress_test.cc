// Many writers at once: nothing is lost, order agrees with the program's, and the recorder hides no
// race of the program from a race detector.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "harness/board/board.h"
#include "harness/board/kvdrill.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

kvdrill_site point{"test.point", KVDRILL_POINT, 0, nullptr, nullptr};
kvdrill_site fault{"test.fault", KVDRILL_FAULT, 0, &point, nullptr};
kvdrill_site note{"test.note", KVDRILL_NOTE, 0, &fault, nullptr};
const char* const kRoles[] = {"tester", nullptr};
const kvdrill_engine kEngine{
    KVDRILL_CONTRACT_VERSION, "stress_test", kRoles, nullptr, &note, nullptr, 0};

TEST(StressTest, NothingIsLostAndEachThreadKeepsItsOrder) {
  constexpr int kProcesses = 2, kThreads = 3, kEvents = 1500;
  Drill drill;
  std::vector<pid_t> pids;
  for (int p = 0; p < kProcesses; ++p) {
    pids.push_back(drill.fork_child("p" + std::to_string(p), [] {
      kvdrill_attach(&kEngine);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([t] {
          for (int i = 0; i < kEvents; ++i) {
            kvdrill_note(&note, i, t, "text");
            kvdrill_fault(&fault, i);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }));
  }
  // Orders come and go meanwhile; each acts as often as it says.
  std::vector<std::uint32_t> orders;
  for (int i = 0; i < 100; ++i) {
    orders.push_back(drill.board.give(
        {.action = Action::kFail, .site = "test.fault", .key = 10 * i, .times = 2, .code = 1}));
    if (i % 3 == 0) drill.board.withdraw(orders.back());
  }
  for (const pid_t pid : pids) EXPECT_EQ(drill.exit_code(pid), 0);
  for (const std::uint32_t order : orders) EXPECT_LE(drill.board.state(order).acted, 2u);
  EXPECT_EQ(drill.board.overflow(), std::nullopt);
  std::map<std::pair<int, int>, std::int64_t> next;
  for (const Event& event : drill.board.events(0)) {
    ASSERT_FALSE(event.torn);
    if (event.kind != EventKind::kNote) continue;
    ASSERT_EQ(event.key, (next[{event.process, event.thread}]++));
    ASSERT_EQ(event.text, "text");
  }
  ASSERT_EQ(next.size(), static_cast<std::size_t>(kProcesses * kThreads));
  for (const auto& [thread, events] : next) EXPECT_EQ(events, kEvents);
}

TEST(StressTest, TheSequenceAgreesWithEveryHappensBefore) {
  Drill drill;
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    std::atomic<int> turn{0};
    std::thread other([&turn] {
      for (int i = 1; i < 4000; i += 2) {
        while (turn.load(std::memory_order_acquire) != i) std::this_thread::yield();
        kvdrill_note(&note, i, 0, nullptr);
        turn.store(i + 1, std::memory_order_release);
      }
    });
    for (int i = 0; i < 4000; i += 2) {
      while (turn.load(std::memory_order_acquire) != i) std::this_thread::yield();
      kvdrill_note(&note, i, 0, nullptr);
      turn.store(i + 1, std::memory_order_release);
    }
    other.join();
  }));
  const auto notes = drill.all(EventKind::kNote);
  ASSERT_EQ(notes.size(), 4000u);
  for (std::int64_t i = 0; i < 4000; ++i) ASSERT_EQ(notes[static_cast<std::size_t>(i)].key, i);
}

// The supervisor sleeps after every look; a lost wake-up would leave it there for its whole guard.
TEST(StressTest, NoWakeUpIsLost) {
  Drill drill;
  int start[2];
  ASSERT_EQ(::pipe(start), 0);
  const pid_t pid = drill.fork_child("one", [&start] {
    char byte = 0;
    if (::read(start[0], &byte, 1) != 1) ::_exit(1);
    kvdrill_attach(&kEngine);
    for (int i = 0; i < 5000; ++i) kvdrill_point(&point, i);
    for (;;) ::pause();
  });
  std::uint64_t from = drill.board.next_sequence();
  // Nobody has written yet: the first look is followed by a sleep for certain.
  ASSERT_FALSE(drill.board.arm_wake(from));
  ASSERT_EQ(::write(start[1], "x", 1), 1);
  bool armed = true, last = false;
  while (!last) {
    if (armed || !drill.board.arm_wake(from)) {
      pollfd entry{drill.board.wake_fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&entry, 1, 60'000), 1) << "asleep at event " << from;
    }
    armed = false;
    drill.board.disarm_wake();
    for (const Event& event : drill.board.events(from)) {
      ++from;
      last = last || (event.kind == EventKind::kPoint && event.key == 4999);
    }
  }
  ::kill(pid, SIGKILL);
  drill.reap(pid);
  ::close(start[0]);
  ::close(start[1]);
}

#if defined(__SANITIZE_THREAD__)
// Two threads race on a plain variable, with a point on either side of it: the points must not look
// like synchronisation. tsan reports at exit with its own code.
TEST(StressTest, TheRecorderHidesNoRace) {
  Drill drill;
  const pid_t pid = drill.fork_child("one", [] {
    if (::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(124);
    kvdrill_attach(&kEngine);
    static int raced = 0;
    static std::atomic<int> turn{0};
    std::thread other([] {
      while (turn.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
      kvdrill_fault(&fault, 1);
      kvdrill_note(&note, 1, 0, "text");
      raced = 2;
    });
    raced = 1;
    kvdrill_fault(&fault, 0);
    kvdrill_note(&note, 0, 0, "text");
    turn.store(1, std::memory_order_relaxed);
    other.join();
    std::exit(raced - 2);
  });
  EXPECT_EQ(drill.exit_code(pid), 66);
}
#endif

}  // namespace
}  // namespace kv::drill
