// A writer may be killed between any two instructions: what it had claimed is torn, and nobody
// waits for it; what a living writer has claimed is waited for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

#include "harness/board/board.h"
#include "harness/board/kvdrill.h"
#include "harness/board/layout.h"
#include "harness/board/recorder.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

kvdrill_site point{"test.point", KVDRILL_POINT, 0, nullptr, nullptr};
const char* const kRoles[] = {"tester", nullptr};
const kvdrill_engine kEngine{
    KVDRILL_CONTRACT_VERSION, "torn_test", kRoles, nullptr, &point, nullptr, 0};

Writer this_writer(const View& view) {
  for (std::uint32_t i = 0; i < view.thread_count(); ++i) {
    ThreadSlot& slot = view.threads[i];
    if (slot.tid == static_cast<pid_t>(::syscall(SYS_gettid))) {
      return {&slot, static_cast<std::uint16_t>(slot.process),
              static_cast<std::uint16_t>(slot.index), 0};
    }
  }
  return {};
}

enum class StopAt { kBeforeNumber, kAfterNumber };

// Claims an event, writes a log line behind it, and stands there; returns when it stands.
pid_t start_claimer(Drill& drill, StopAt stop) {
  int stands[2];
  EXPECT_EQ(::pipe(stands), 0);
  const pid_t pid = drill.fork_child("claimer", [&] {
    kvdrill_attach(&kEngine);
    const View view = second_view(drill.board);
    const Writer writer = this_writer(view);
    if (stop == StopAt::kAfterNumber) {
      claim_event(view, writer);
    } else {
      // Dies after the sequence was taken, and before it could say which one it got.
      writer.slot->writing[0].store(kClaiming);
      view.head->next.fetch_add(1);
    }
    Writer other = writer;
    other.level = 1;
    write_event(view, other, {EventKind::kLog, 0, 0, 0, put_text(view, "behind", 100)});
    if (::write(stands[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  });
  char byte = 0;
  EXPECT_EQ(::read(stands[0], &byte, 1), 1);
  ::close(stands[0]);
  ::close(stands[1]);
  return pid;
}

class TornTest : public ::testing::TestWithParam<StopAt> {};

TEST_P(TornTest, AClaimIsTornOnceItsWriterIsDead) {
  Drill drill;
  const pid_t pid = start_claimer(drill, GetParam());
  // The log line is the last event so far; the claim comes before it.
  const std::uint64_t torn = drill.board.next_sequence() - 2;
  EXPECT_EQ(drill.board.events(0).size(), torn) << drill.trace();
  EXPECT_FALSE(drill.board.arm_wake(torn));
  drill.board.disarm_wake();

  ::kill(pid, SIGKILL);
  drill.reap(pid);
  const auto events = drill.board.events(0);
  ASSERT_EQ(events.size(), torn + 2) << drill.trace();
  EXPECT_TRUE(events[torn].torn);
  EXPECT_EQ(events[torn].sequence, torn);
  EXPECT_EQ(events[torn].name, "");
  EXPECT_FALSE(events[torn + 1].torn);
  EXPECT_EQ(events[torn + 1].text, "behind");
  EXPECT_TRUE(drill.board.arm_wake(torn)) << "there is something to read now";
}

INSTANTIATE_TEST_SUITE_P(Moments, TornTest,
                         ::testing::Values(StopAt::kBeforeNumber, StopAt::kAfterNumber));

TEST(TornTest, AClaimOfTheLivingIsWaitedForWhoeverElseDied) {
  Drill drill;
  const View view = second_view(drill.board);
  Writer writer;
  writer.slot = claim_thread(view, 0, ::getpid(), "slow");
  writer.thread = static_cast<std::uint16_t>(writer.slot->index);
  const std::uint64_t mine = claim_event(view, writer);
  drill.reap(drill.fork_child("dead", [] { kvdrill_attach(&kEngine); }));
  EXPECT_GT(drill.board.next_sequence(), mine + 1);
  EXPECT_EQ(drill.board.events(0).size(), mine);
  commit_event(view, writer, mine, 1, {EventKind::kNote, 0, 77, 0, {}});
  EXPECT_EQ(drill.board.events(0).at(mine).key, 77);
  EXPECT_EQ(drill.board.events(0).size(), drill.board.next_sequence());
}

// Killed at whatever instruction it stands: everything claimed can be read, whole or torn.
TEST(TornTest, AfterAnyKillTheWholeRecordIsReadable) {
  for (int round = 0; round < 40; ++round) {
    Drill drill;
    const pid_t pid = drill.fork_child("writer", [] {
      kvdrill_attach(&kEngine);
      const auto work = [] {
        for (std::int64_t i = 0; i < 12000; ++i) kvdrill_note(&point, i, ~i, "text");
      };
      std::thread other(work);
      work();
      other.join();
      for (;;) ::pause();
    });
    drill.wait_for([round](const Event& event) {
      return event.kind == EventKind::kNote && event.key >= 97 * round;
    });
    ::kill(pid, SIGKILL);
    drill.reap(pid);
    const auto events = drill.board.events(0);
    EXPECT_EQ(events.size(), drill.board.next_sequence());
    for (const Event& event : events) {
      if (event.torn || event.kind != EventKind::kNote) continue;
      ASSERT_EQ(event.value, ~event.key);
      ASSERT_EQ(event.text, "text");
    }
  }
}

}  // namespace
}  // namespace kv::drill
