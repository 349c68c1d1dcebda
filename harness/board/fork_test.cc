// Children of an engine: forked ones join the board again under a name of their own, when they have
// something to say; programs that a process starts join under a name of their own, too.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "harness/board/board.h"
#include "harness/board/kvdrill.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

kvdrill_site fault{"test.fault", KVDRILL_FAULT, 0, nullptr, nullptr};
kvdrill_site note{"test.note", KVDRILL_NOTE, 0, &fault, nullptr};
const char* const kRoles[] = {"tester", nullptr};
const kvdrill_engine kEngine{
    KVDRILL_CONTRACT_VERSION, "fork_test", kRoles, nullptr, &note, nullptr, 0};

// Forks, runs `body` in the child and waits for it.
template <typename Body>
void in_fork(const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ::_exit(1);
}

TEST(ForkTest, AForkedChildRegistersAnewAndCountsItsOwnHits) {
  Drill drill;
  const pid_t pid = drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    kvdrill_fault(&fault, 1);
    kvdrill_fault(&fault, 1);
    in_fork([] { kvdrill_fault(&fault, 2); });
    in_fork([] { kvdrill_fault(&fault, 3); });
    kvdrill_fault(&fault, 1);
  });
  EXPECT_EQ(drill.exit_code(pid), 0);
  const auto processes = drill.board.processes();
  ASSERT_EQ(processes.size(), 4u);
  EXPECT_FALSE(processes[1].forked);
  EXPECT_EQ(processes[2].name, "one.fork-1");
  EXPECT_TRUE(processes[2].forked);
  EXPECT_NE(processes[2].pid, pid);
  EXPECT_EQ(processes[2].threads.at(0).label, "main");
  EXPECT_EQ(processes[3].name, "one.fork-2");
  const auto hits = drill.all(EventKind::kPoint);
  ASSERT_EQ(hits.size(), 5u);
  EXPECT_EQ(hits[2].process, 2);
  EXPECT_EQ(hits[2].value, 1) << "the first hit of the child";
  EXPECT_EQ(hits[3].process, 3);
  EXPECT_EQ(hits[4].process, 1);
  EXPECT_EQ(hits[4].value, 3) << "the parent goes on counting";
}

TEST(ForkTest, AChildThatSaysNothingIsNotListed) {
  Drill drill;
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    for (int i = 0; i < 100; ++i) in_fork([] {});
  }));
  EXPECT_EQ(drill.board.processes().size(), 2u);
  EXPECT_EQ(drill.board.overflow(), std::nullopt);
}

TEST(ForkTest, OrdersAndCommandsForTheParentAreNotTheChilds) {
  Drill drill;
  drill.board.give({.action = Action::kFail, .site = "test.fault", .process = "one", .code = 5});
  drill.board.give(
      {.action = Action::kFail, .site = "test.fault", .process = "one.fork-1", .code = 6});
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    in_fork([] {
      kvdrill_note(&note, 0, kvdrill_fault(&fault, 0), nullptr);
      kvdrill_note(&note, 1, kvdrill_serve(), nullptr);
    });
    kvdrill_note(&note, 2, kvdrill_fault(&fault, 0), nullptr);
  }));
  const auto notes = drill.all(EventKind::kNote);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_EQ(notes[0].value, 6);
  EXPECT_EQ(notes[1].value, 0) << "serving is the parent's";
  EXPECT_EQ(notes[2].value, 5);
  EXPECT_FALSE(drill.board.call("one.fork-1", "x", "{}", "c", 1));
}

TEST(ForkTest, AForkWhileOtherThreadsWriteIsClean) {
  Drill drill;
  const pid_t pid = drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    std::thread writer([] {
      for (int i = 0; i < 2000; ++i) kvdrill_fault(&fault, i);
    });
    for (int i = 0; i < 20; ++i) {
      in_fork([] {
        kvdrill_fault(&fault, -1);
        kvdrill_note(&note, 0, 0, "child");
      });
    }
    writer.join();
  });
  EXPECT_EQ(drill.exit_code(pid), 0);
  EXPECT_EQ(drill.all(EventKind::kNote).size(), 20u);
  EXPECT_EQ(drill.board.processes().size(), 22u);
  EXPECT_EQ(drill.board.events(0).size(), drill.board.next_sequence());
}

TEST(ForkTest, AProgramStartedByAProcessOfTheDrillJoinsUnderItsOwnName) {
  Drill drill;
  char root[] = "/tmp/kvd-fork-XXXXXX";
  ASSERT_NE(::mkdtemp(root), nullptr);
  const std::string program = std::string(KVDRILL_BUILD_DIR) + "/example_engine";
  ::fcntl(drill.board.board_fd(), F_SETFD, 0);
  ::fcntl(drill.board.wake_fd(), F_SETFD, 0);
  const pid_t pid = drill.fork_child("one", [&] {
    kvdrill_attach(&kEngine);
    in_fork([&] {
      ::execl(program.c_str(), program.c_str(), "--socket-root", root, nullptr);
      ::_exit(127);
    });
  });
  drill.wait_for(
      [](const Event& event) { return event.kind == EventKind::kReady && event.process == 2; });
  EXPECT_EQ(drill.board.processes().at(2).name, "one.child-1");
  EXPECT_FALSE(drill.board.processes().at(2).forked);
  EXPECT_TRUE(drill.board.call("one.child-1", "shutdown", "{}", "stop", 1));
  EXPECT_EQ(drill.wait_for(EventKind::kReturn).text, "done");
  EXPECT_TRUE(drill.board.tell_exit("one.child-1", "return", 0));
  EXPECT_EQ(drill.exit_code(pid), 0);
  EXPECT_EQ(::rmdir(root), 0);
}

}  // namespace
}  // namespace kv::drill
