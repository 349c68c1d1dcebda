#include "harness/process/stuck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;

ThreadState thread(pid_t tid, const char* call) {
  ThreadState state;
  state.pid = 10;
  state.tid = tid;
  state.state = 'S';
  state.call = call;
  state.comm = "comm";
  return state;
}

Event event(EventKind kind, std::uint16_t of_thread, std::string_view name, std::string_view text) {
  Event made;
  made.kind = kind;
  made.time_ns = 5'000'000;
  made.process = 1;
  made.thread = of_thread;
  made.name = name;
  made.text = text;
  return made;
}

std::vector<ProcessInfo> processes() {
  std::vector<ProcessInfo> all(2);
  all[1] = {"worker", 10, false, true, false, {{10, "main"}, {11, "listener"}, {12, "stop"}}};
  return all;
}

TEST(StuckTest, HeldThreadsComeFirstThenThoseThatSaidSomethingThenTheIdle) {
  const auto waiters = who_waits(
      {thread(10, "futex"), thread(12, "futex"), thread(11, "futex")}, processes(),
      {event(EventKind::kPoint, 1, "vmm.map", ""), event(EventKind::kActed, 1, "vmm.map", "hold"),
       event(EventKind::kPoint, 2, "listener.stop.draining", "")});
  ASSERT_EQ(waiters.size(), 3u);
  EXPECT_EQ(waiters[0].label, "listener");
  EXPECT_EQ(waiters[0].where, "held at vmm.map[0]");
  EXPECT_EQ(waiters[0].whom, "the drill");
  EXPECT_EQ(waiters[1].label, "stop");
  EXPECT_EQ(waiters[2].label, "main");
  EXPECT_EQ(in_short(waiters),
            "worker/listener is held at vmm.map[0]; "
            "worker/stop waits in futex after listener.stop.draining[0]");
  const auto table = as_table(waiters, 7'000'000);
  EXPECT_THAT(table, HasSubstr("worker/stop"));
  EXPECT_THAT(table, HasSubstr("2.000 ms"));
}

TEST(StuckTest, AReleasedThreadIsNotHeld) {
  const auto waiters = who_waits(
      {thread(11, "epoll_wait")}, processes(),
      {event(EventKind::kPoint, 1, "vmm.map", ""), event(EventKind::kActed, 1, "vmm.map", "hold"),
       event(EventKind::kReleased, 1, "vmm.map", "")});
  EXPECT_EQ(in_short(waiters), "worker/listener waits in epoll_wait after vmm.map[0]");
}

TEST(StuckTest, AnInjectedFailureHoldsNobody) {
  const auto waiters = who_waits({thread(11, "epoll_wait")}, processes(),
                                 {event(EventKind::kActed, 1, "vmm.map", "fail")});
  EXPECT_FALSE(waiters[0].held);
}

TEST(StuckTest, APendingCallIsSaidAReturnedOneIsNot) {
  const auto call = event(EventKind::kCall, 2, "shutdown", "stop");
  EXPECT_EQ(in_short(who_waits({thread(12, "futex")}, processes(), {call})),
            "worker/stop waits in futex after call shutdown");
  EXPECT_EQ(in_short(who_waits({thread(12, "futex")}, processes(),
                               {call, event(EventKind::kReturn, 2, "shutdown", "done")})),
            "every thread is idle");
}

TEST(StuckTest, AStoppedProcessIsSaidOnce) {
  auto one = thread(11, "futex"), other = thread(12, "futex");
  one.state = other.state = 'T';
  EXPECT_EQ(in_short(who_waits({one, other}, processes(), {})), "worker is stopped");
}

TEST(StuckTest, AChildIsSaidByWhichSignalItIsStopped) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGTSTP);
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED | WNOWAIT), 0);
  auto stopped = thread(child, "?");
  stopped.pid = child;
  stopped.state = 'T';
  EXPECT_EQ(in_short(who_waits({stopped}, {}, {})),
            "comm (pid " + std::to_string(child) + ") is stopped by SIGTSTP");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(StuckTest, WhoRunsOrWaitsWithALimitIsNotIdleThoughItNeverSaidAnything) {
  auto running = thread(11, "running"), limited = thread(12, "poll");
  running.state = 'R';
  limited.timed = true;
  EXPECT_EQ(in_short(who_waits({thread(10, "futex"), running, limited}, processes(), {})),
            "worker/listener is running; worker/stop waits in poll (with a limit)");
}

TEST(StuckTest, AThreadThatTheBoardDoesNotKnowHasTheKernelsName) {
  EXPECT_EQ(who_waits({thread(99, "read")}, processes(), {})[0].label, "comm");
}

TEST(StuckTest, WithoutAProcessThatIsSaid) {
  EXPECT_EQ(in_short({}), "no process lives");
}

}  // namespace
}  // namespace kv::drill
