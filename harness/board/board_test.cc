#include "harness/board/board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "harness/board/kvdrill.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

kvdrill_site point{"test.point", KVDRILL_POINT, 0, nullptr, nullptr};
kvdrill_site fault{"test.fault", KVDRILL_FAULT, 0, &point, nullptr};
kvdrill_site step{"test.step", KVDRILL_STEP, 0, &fault, nullptr};
kvdrill_site note{"test.note", KVDRILL_NOTE, 0, &step, nullptr};
kvdrill_site label{"thread.label", KVDRILL_NOTE, 0, &note, nullptr};
const char* const kRoles[] = {"tester", nullptr};
const kvdrill_engine kEngine{
    KVDRILL_CONTRACT_VERSION, "board_test", kRoles, nullptr, &label, nullptr, 0};

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

TEST(BoardTest, AnEventHoldsWhatWasWritten) {
  Drill drill;
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    kvdrill_note(&note, -7, 1234567890123, "some text");
    kvdrill_point(&point, 3);
    kvdrill_point(&point, 4);
    kvdrill_done(&fault, 5, -2);
    kvdrill_log(2, "a line");
    kvdrill_announce("socket", "/run/x");
    kvdrill_ready();
  }));
  const Event event = drill.wait_for(EventKind::kNote);
  EXPECT_EQ(event.name, "test.note");
  EXPECT_EQ(event.key, -7);
  EXPECT_EQ(event.value, 1234567890123);
  EXPECT_EQ(event.text, "some text");
  EXPECT_EQ(event.process, 1);
  EXPECT_GT(event.time_ns, 0);
  const auto points = drill.all(EventKind::kPoint, "test.point");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].key, 4);
  EXPECT_EQ(points[1].value, 2) << "the hit";
  EXPECT_EQ(drill.wait_for(EventKind::kDone).value, -2);
  EXPECT_EQ(drill.wait_for(EventKind::kLog).text, "a line");
  EXPECT_EQ(drill.wait_for(EventKind::kLog).key, 2);
  EXPECT_EQ(drill.wait_for(EventKind::kAnnounced, "socket").text, "/run/x");
  EXPECT_TRUE(drill.board.processes().at(1).ready);
}

TEST(BoardTest, TheSupervisorWritesItsOwnEvents) {
  Board board({});
  board.record("step", 1, 2, "wait for the read");
  const auto events = board.events(0);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kSupervisor);
  EXPECT_EQ(events[0].name, "step");
  EXPECT_EQ(events[0].text, "wait for the read");
  EXPECT_EQ(board.processes().at(0).name, "supervisor");
  EXPECT_EQ(board.next_sequence(), 1u);
  EXPECT_TRUE(board.events(1).empty());
}

TEST(BoardTest, ProcessesAndThreadsAreListedUnderTheirNames) {
  Drill drill;
  const pid_t pid = drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    std::thread([] { kvdrill_point(&point, 0); }).join();
    std::thread([] { kvdrill_thread("named"); }).join();
    std::thread([] { kvdrill_note(&label, 0, 0, "noted"); }).join();
    std::thread([] {
      kvdrill_point(&point, 0);
      kvdrill_thread("renamed");
      kvdrill_point(&point, 0);
    }).join();
  });
  drill.reap(pid);
  const ProcessInfo process = drill.board.processes().at(1);
  EXPECT_EQ(process.name, "one");
  EXPECT_EQ(process.pid, pid);
  EXPECT_FALSE(process.forked);
  EXPECT_FALSE(process.ready);
  std::vector<std::string> labels;
  for (const ThreadInfo& thread : process.threads) {
    if (thread.label != "runtime") labels.push_back(thread.label);
  }
  ASSERT_EQ(labels.size(), 6u);
  EXPECT_EQ(labels[0], "main");
  EXPECT_EQ(labels[1], "kvdrill.commands");
  EXPECT_EQ(labels[2].substr(0, 7), "thread-");
  EXPECT_EQ(labels[3], "named");
  EXPECT_EQ(labels[4], "noted");
  EXPECT_EQ(labels[5], "renamed");
  EXPECT_EQ(process.threads[0].tid, pid);
  EXPECT_TRUE(drill.all(EventKind::kNote, "thread.label").empty());
  EXPECT_EQ(drill.wait_for(EventKind::kRegistered).text, "one");
}

TEST(BoardTest, LongTextIsCutBetweenCharacters) {
  Drill drill;
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    std::string text = "x";
    for (int i = 0; i < 3000; ++i) text += "\u00e9";
    kvdrill_note(&note, 0, 0, text.c_str());
  }));
  const Event event = drill.wait_for(EventKind::kNote);
  EXPECT_EQ(event.text.size(), 3999u);
  EXPECT_EQ(event.text.substr(3997), "\u00e9");
  EXPECT_FALSE(drill.board.overflow().has_value()) << "cutting is what was promised";
}

TEST(BoardTest, TheSameShortTextIsStoredOnce) {
  Drill drill({.events = 8192, .text_bytes = 8192});
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    for (int i = 0; i < 4000; ++i) kvdrill_note(&note, 0, 0, i % 2 == 0 ? "map" : "unmap");
  }));
  EXPECT_EQ(drill.board.overflow(), std::nullopt);
  EXPECT_EQ(drill.all(EventKind::kNote).at(3999).text, "unmap");
}

TEST(BoardTest, AFullRecorderIsAnOverflowAndNotAWrap) {
  Drill drill({.events = 64});
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    for (int i = 0; i < 200; ++i) kvdrill_point(&point, i);
  }));
  EXPECT_EQ(drill.board.next_sequence(), 64u);
  const auto events = drill.board.events(0);
  ASSERT_EQ(events.size(), 64u);
  EXPECT_NE(events[0].kind, EventKind::kPoint) << "the first event is still the first";
  EXPECT_EQ(drill.board.overflow(), "the board is full: events (64)");
}

TEST(BoardTest, EveryTableThatIsFullIsNamed) {
  Drill drill({.events = 1024, .text_bytes = 4096});
  for (int i = 0; i < 300; ++i) drill.board.give({.site = "x"});
  EXPECT_EQ(drill.board.give({.site = "x"}), 0u);
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    kvdrill_log(0, std::string(3990, 'x').c_str());
    kvdrill_log(0, std::string(3990, 'y').c_str());
    for (int i = 0; i < 300; ++i) std::thread([] { kvdrill_point(&point, 0); }).join();
  }));
  EXPECT_EQ(drill.board.overflow(),
            "the board is full: bytes of text (4096); threads (256); orders (256)");
  EXPECT_EQ(drill.all(EventKind::kLog).at(1).text, "") << "the event itself is there";
}

TEST(BoardTest, TooManyNamesAreAnOverflow) {
  Board board({});
  for (int i = 0; i < 2100; ++i) board.record("name " + std::to_string(i), 0, 0, "");
  EXPECT_EQ(board.overflow(), "the board is full: names (2048)");
  EXPECT_EQ(board.events(0).size(), 2100u);
}

TEST(BoardTest, TooManyProcessesAreAnOverflowAndTheyGoOnWithoutADrill) {
  Drill drill;
  for (int i = 0; i < 256; ++i) {
    const pid_t pid = drill.fork_child("one", [] {
      const bool attached = kvdrill_attach(&kEngine) != nullptr;
      kvdrill_point(&point, 0);
      ::_exit(attached ? 0 : 1);
    });
    ASSERT_EQ(drill.exit_code(pid), i < 255 ? 0 : 1);
  }
  EXPECT_EQ(drill.board.overflow(), "the board is full: processes (256)");
}

TEST(BoardTest, TheEventfdIsWrittenOnlyWhileTheSupervisorWaits) {
  Drill drill;
  drill.reap(drill.fork_child("one", [] { kvdrill_attach(&kEngine); }));
  EXPECT_FALSE(readable(drill.board.wake_fd()));
  ASSERT_FALSE(drill.board.arm_wake(drill.board.next_sequence()));
  EXPECT_FALSE(readable(drill.board.wake_fd()));
  drill.reap(drill.fork_child("two", [] { kvdrill_attach(&kEngine); }));
  EXPECT_TRUE(readable(drill.board.wake_fd()));
  drill.board.disarm_wake();
  EXPECT_FALSE(readable(drill.board.wake_fd()));
  drill.reap(drill.fork_child("three", [] { kvdrill_attach(&kEngine); }));
  EXPECT_FALSE(readable(drill.board.wake_fd()));
}

TEST(BoardTest, ArmingSeesWhatIsThereAlready) {
  Board board({.events = 64});
  board.record("a", 0, 0, "");
  EXPECT_TRUE(board.arm_wake(0));
  EXPECT_FALSE(board.arm_wake(1));
  for (int i = 0; i < 64; ++i) board.record("a", 0, 0, "");
  EXPECT_TRUE(board.arm_wake(64)) << "an overflow that nobody was told of";
  EXPECT_TRUE(board.overflow().has_value());
  EXPECT_FALSE(board.arm_wake(64));
}

TEST(BoardTest, NobodyCanChangeItsSize) {
  Board board({});
  EXPECT_NE(::ftruncate(board.board_fd(), 0), 0);
  EXPECT_NE(::ftruncate(board.board_fd(), 1 << 30), 0);
}

// --- the environment

struct Outcome {
  int code = 0;
  std::string errors;  // standard error
};

Outcome run_with(Drill& drill, const std::string& variable, const std::function<int()>& body) {
  const int file = ::memfd_create("stderr", MFD_CLOEXEC);
  const pid_t pid = drill.fork_child("one", [&] {
    ::dup2(file, STDERR_FILENO);
    if (variable.empty()) ::unsetenv("KVDRILL_BOARD");
    if (!variable.empty()) ::setenv("KVDRILL_BOARD", variable.c_str(), 1);
    ::_exit(body());
  });
  Outcome outcome;
  outcome.code = drill.exit_code(pid);
  char bytes[4096];
  const ssize_t n = ::pread(file, bytes, sizeof bytes, 0);
  outcome.errors.assign(bytes, n > 0 ? static_cast<std::size_t>(n) : 0);
  ::close(file);
  return outcome;
}

// Everything may be called; what it answers, as bits.
int call_everything() {
  int wrong = 0;
  if (kvdrill_attach(&kEngine) != nullptr) wrong |= 1;
  kvdrill_add_sites(&label);
  if (kvdrill_attached() != 0) wrong |= 2;
  kvdrill_point(&point, 0);
  if (kvdrill_fault(&fault, 0) != 0) wrong |= 4;
  if (kvdrill_step(&step, 0) != 1) wrong |= 8;
  kvdrill_done(&step, 0, 0);
  kvdrill_note(&note, 0, 0, nullptr);
  kvdrill_thread("x");
  kvdrill_announce("a", "b");
  kvdrill_ready();
  kvdrill_log(0, "line");
  if (kvdrill_serve() != 0) wrong |= 16;
  if (kvdrill_clock_is_manual() != 0) wrong |= 32;
  const auto before = kvdrill_now();
  if (before <= 0 || kvdrill_now() < before) wrong |= 64;
  kvdrill_on_clock([](void*, std::int64_t) {}, nullptr);
  return wrong;
}

TEST(EnvironmentTest, WithoutADrillEverythingIsHarmlessAndSilent) {
  Drill drill;
  const Outcome outcome = run_with(drill, "", call_everything);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.errors, "");
  EXPECT_EQ(drill.board.next_sequence(), 0u);
}

TEST(EnvironmentTest, AWrongVariableIsNamedOnceAndThenTakenAsAbsent) {
  Drill drill;
  const int other = ::memfd_create("other", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(other, 4096), 0);
  const std::string no_board = std::to_string(other) + "," + std::to_string(other);
  const std::string no_wake = std::to_string(drill.board.board_fd()) + ",999";
  const std::string expected = "expected \"<board fd>,<wake fd>\"";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"x", expected},
      {"3", expected},
      {"3,", expected},
      {"3,4,5", expected},
      {"-1,4", expected},
      {"998,999", "Bad file descriptor"},
      {no_wake, "the wake descriptor: Bad file descriptor"},
      {no_board, "descriptor " + std::to_string(other) + " is not a board"}};
  for (const auto& [variable, why] : cases) {
    const Outcome outcome = run_with(drill, variable, call_everything);
    EXPECT_EQ(outcome.code, 0) << variable;
    EXPECT_NE(outcome.errors.find("KVDRILL_BOARD=\"" + variable + "\": "), std::string::npos)
        << outcome.errors;
    EXPECT_NE(outcome.errors.find(why), std::string::npos) << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1);
  }
  ::close(other);
}

TEST(EnvironmentTest, AnEngineOfAnotherContractIsRefused) {
  Drill drill;
  const Outcome outcome = run_with(
      drill, Board::environment(drill.board.board_fd(), drill.board.wake_fd()).substr(14), [] {
        kvdrill_engine other = kEngine;
        other.version = 99;
        return kvdrill_attach(&other) == nullptr && kvdrill_attach(nullptr) == nullptr ? 0 : 1;
      });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.errors.find("contract version 1, got 99"), std::string::npos);
}

TEST(EnvironmentTest, ALibraryMakesAForeignProgramVisible) {
  Drill drill;
  drill.reap(drill.fork_child("foreign", [] {
    kvdrill_point(&point, 0);  // unknown so far: nothing happens
    kvdrill_add_sites(&label);
    kvdrill_point(&point, 1);
  }));
  EXPECT_EQ(drill.board.processes().at(1).name, "foreign");
  ASSERT_EQ(drill.all(EventKind::kPoint).size(), 1u);
  EXPECT_EQ(drill.all(EventKind::kPoint)[0].key, 1);
}

TEST(EnvironmentTest, AProgramMayAttachAfterItsLibrary) {
  Drill drill;
  const pid_t pid = drill.fork_child("late", [] {
    kvdrill_add_sites(&label);
    if (kvdrill_attach(&kEngine) == nullptr) ::_exit(1);
    kvdrill_ready();
    ::_exit(kvdrill_serve());
  });
  drill.wait_for(EventKind::kReady);
  EXPECT_EQ(drill.all(EventKind::kRegistered).size(), 1u);
  EXPECT_TRUE(drill.board.tell_exit("late", "return", 9));
  EXPECT_EQ(drill.exit_code(pid), 9);
}

}  // namespace
}  // namespace kv::drill
