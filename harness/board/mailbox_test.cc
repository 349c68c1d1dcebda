// What a supervisor tells a process: commands, the end, the time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>

#include "harness/board/board.h"
#include "harness/board/kvdrill.h"
#include "harness/board/proc_stat.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

kvdrill_site point{"test.point", KVDRILL_POINT, 0, nullptr, nullptr};
kvdrill_site note{"test.note", KVDRILL_NOTE, 0, &point, nullptr};

void echo(void* engine, const char* arguments, kvdrill_reply* reply) {
  kvdrill_note(&note, 0, 0, engine == nullptr ? "no engine" : static_cast<const char*>(engine));
  kvdrill_answer(reply, arguments);
}
void silent(void*, const char*, kvdrill_reply*) {}
void fails(void*, const char*, kvdrill_reply* reply) {
  kvdrill_answer_error(reply, "no room");
}
void throws(void*, const char*, kvdrill_reply*) {
  throw std::runtime_error("thrown");
}
void blocks(void*, const char*, kvdrill_reply*) {
  kvdrill_point(&point, 0);
}
void signals(void*, const char*, kvdrill_reply* reply) {
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  kvdrill_answer(reply, sigismember(&blocked, SIGUSR1) != 0 ? "blocked" : "open");
}

const kvdrill_command kCommands[] = {{"echo", "Answers its arguments.", echo},
                                     {"silent", "Answers nothing.", silent},
                                     {"fails", "Fails.", fails},
                                     {"throws", "Throws.", throws},
                                     {"blocks", "Reaches test.point.", blocks},
                                     {"signals", "Says whether SIGUSR1 is blocked.", signals},
                                     {nullptr, nullptr, nullptr}};
const char* const kRoles[] = {"tester", nullptr};
char engine_name[] = "the engine";
const kvdrill_engine kEngine{
    KVDRILL_CONTRACT_VERSION, "mailbox_test", kRoles, kCommands, &note, engine_name, 0};

class MailboxTest : public ::testing::Test {
 protected:
  pid_t serve(const std::string& name = "one") {
    const std::uint64_t from = drill_.board.next_sequence();
    const pid_t pid = drill_.fork_child(name, [] {
      kvdrill_attach(&kEngine);
      kvdrill_ready();
      ::_exit(kvdrill_serve());
    });
    drill_.wait_for(EventKind::kReady, {}, from);
    return pid;
  }
  Event answer_of(std::uint32_t id) {
    return drill_.wait_for(
        [id](const Event& event) { return event.kind == EventKind::kReturn && event.value == id; });
  }
  Event ask(const std::string& command, const std::string& arguments = "{}") {
    EXPECT_TRUE(drill_.board.call("one", command, arguments, "call " + command, ++id_));
    return answer_of(id_);
  }

  Drill drill_;
  std::uint32_t id_ = 0;
};

TEST_F(MailboxTest, ACommandRunsOnAThreadNamedAfterTheCall) {
  serve();
  const Event answer = ask("echo", R"({"pages": [1, 2]})");
  EXPECT_EQ(answer.text, R"({"pages": [1, 2]})");
  EXPECT_EQ(answer.name, "echo");
  EXPECT_EQ(answer.key, 0);
  const Event call = drill_.wait_for(EventKind::kCall, "echo");
  EXPECT_EQ(call.text, "call echo");
  EXPECT_EQ(call.value, answer.value);
  EXPECT_LT(call.sequence, answer.sequence);
  EXPECT_EQ(drill_.wait_for(EventKind::kNote).text, "the engine");
  EXPECT_EQ(drill_.board.processes().at(1).threads.at(answer.thread).label, "call echo");
}

TEST_F(MailboxTest, AnswersAreOkUnlessTheCommandSaysOtherwise) {
  serve();
  EXPECT_EQ(ask("silent").text, "ok");
  EXPECT_EQ(ask("echo", "").text, "{}");
  const Event failed = ask("fails");
  EXPECT_EQ(failed.text, "no room");
  EXPECT_EQ(failed.key, 1);
  const Event thrown = ask("throws");
  EXPECT_EQ(thrown.text, "the command threw: thrown");
  EXPECT_EQ(thrown.key, 1);
}

TEST_F(MailboxTest, AnUnknownCommandIsAnErrorThatNamesIt) {
  serve();
  const Event answer = ask("eko");
  EXPECT_EQ(answer.key, 1);
  EXPECT_EQ(
      answer.text,
      "unknown command \"eko\"; this process has echo, silent, fails, throws, blocks, signals");
}

TEST_F(MailboxTest, CommandsRunBesideEachOther) {
  serve();
  const auto hold = drill_.board.give({.site = "test.point", .times = 0});
  for (const std::uint32_t id : {101u, 102u}) {
    EXPECT_TRUE(drill_.board.call("one", "blocks", "{}", "b" + std::to_string(id), id));
  }
  std::set<std::uint16_t> held;
  drill_.wait_for([&held](const Event& event) {
    if (event.kind == EventKind::kActed) held.insert(event.thread);
    return held.size() == 2;
  });
  EXPECT_EQ(ask("silent").text, "ok");
  drill_.board.release(hold);
  answer_of(101);
  answer_of(102);
}

TEST_F(MailboxTest, TheCommandThreadTakesNoSignalsAndItsCallsTakeThemAll) {
  const pid_t pid = serve();
  EXPECT_EQ(ask("signals").text, "open");
  const auto threads = drill_.board.processes().at(1).threads;
  const auto commands = std::find_if(threads.begin(), threads.end(), [](const ThreadInfo& thread) {
    return thread.label == "kvdrill.commands";
  });
  ASSERT_NE(commands, threads.end());
  const std::string path =
      "/proc/" + std::to_string(pid) + "/task/" + std::to_string(commands->tid) + "/";
  // While it starts the thread of a call, pthread_create has all signals blocked in it: it is
  // looked at when it sleeps, waiting for the next command.
  while (const char state = state_in(path + "stat")) {
    if (state == 'S') break;
  }
  FILE* status = std::fopen((path + "status").c_str(), "r");
  ASSERT_NE(status, nullptr);
  char line[256];
  unsigned long long blocked = 0;
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::sscanf(line, "SigBlk: %llx", &blocked) == 1) break;
  }
  std::fclose(status);
  EXPECT_NE(blocked & 1ull << (SIGUSR1 - 1), 0u);
  EXPECT_NE(blocked & 1ull << (SIGTERM - 1), 0u);
  EXPECT_EQ(blocked & 1ull << (SIGSEGV - 1), 0u);
}

TEST_F(MailboxTest, ACallNeedsALivingProcessOfThatName) {
  const pid_t pid = serve();
  EXPECT_FALSE(drill_.board.call("two", "silent", "{}", "c", 1));
  EXPECT_FALSE(drill_.board.call("supervisor", "silent", "{}", "c", 1));
  ::kill(pid, SIGKILL);
  drill_.reap(pid);
  EXPECT_FALSE(drill_.board.call("one", "silent", "{}", "c", 1));
  EXPECT_FALSE(drill_.board.tell_exit("one", "return", 0));
  serve();
  EXPECT_EQ(ask("silent").process, 2) << "the name's next bearer";
}

TEST_F(MailboxTest, AFullMailboxRefusesAndLosesNothing) {
  const pid_t pid = serve();
  ::kill(pid, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  std::uint32_t taken = 0;
  while (drill_.board.call("one", "silent", "{}", "c", taken + 1)) ++taken;
  EXPECT_EQ(taken, 16u);
  ::kill(pid, SIGCONT);
  for (std::uint32_t id = 1; id <= taken; ++id) answer_of(id);
}

TEST_F(MailboxTest, EveryWayToEndIsTheRealOne) {
  std::uint64_t from = 0;
  const auto told = [&](const char* how, int code) {
    const pid_t pid = drill_.fork_child("one", [] {
      std::atexit([] { kvdrill_note(&note, 0, 0, "atexit"); });
      std::at_quick_exit([] { kvdrill_note(&note, 0, 0, "at_quick_exit"); });
      kvdrill_attach(&kEngine);
      kvdrill_ready();
      const int answer = kvdrill_serve();
      kvdrill_note(&note, 0, 0, "returned");
      ::_exit(answer);
    });
    drill_.wait_for(EventKind::kReady, {}, from);
    from = drill_.board.next_sequence();
    EXPECT_TRUE(drill_.board.tell_exit("one", how, code));
    const int end = drill_.exit_code(pid);
    std::string text = std::to_string(end);
    for (const Event& event : drill_.board.events(from)) {
      if (event.kind == EventKind::kNote) text += " " + std::string(event.text);
    }
    from = drill_.board.next_sequence();
    return text;
  };
  EXPECT_EQ(told("return", 3), "3 returned");
  EXPECT_EQ(told("exit", 4), "4 atexit");
  EXPECT_EQ(told("_exit", 5), "5");
  EXPECT_EQ(told("quick_exit", 6), "6 at_quick_exit");
  EXPECT_EQ(told("abort", 0), "-6");
}

TEST_F(MailboxTest, AnUnknownWayToEndIsRefused) {
  serve();
  EXPECT_FALSE(drill_.board.tell_exit("one", "leave", 0));
}

// --- the clock

struct Moved {
  static void call(void*, std::int64_t now) { kvdrill_note(&note, 0, now, "moved"); }
};

TEST(ClockTest, AMovedClockIsTakenOverByEveryProcess) {
  Drill drill({.manual_clock = true, .start_ns = 5});
  for (const char* name : {"one", "two"}) {
    const std::uint64_t from = drill.board.next_sequence();
    drill.fork_child(name, [] {
      kvdrill_attach(&kEngine);
      kvdrill_on_clock(Moved::call, nullptr);
      if (kvdrill_clock_is_manual() == 1) kvdrill_note(&note, 0, kvdrill_now(), "now");
      kvdrill_ready();
      ::_exit(kvdrill_serve());
    });
    drill.wait_for(EventKind::kReady, {}, from);
  }
  EXPECT_EQ(drill.wait_for(EventKind::kNote).value, 5);
  drill.board.set_clock(1000);
  EXPECT_EQ(drill.board.clock_now(), 1000);
  for (const std::uint16_t process : {1, 2}) {
    const Event taken = drill.wait_for([process](const Event& event) {
      return event.kind == EventKind::kClock && event.process == process;
    });
    EXPECT_EQ(taken.value, 1000);
    const Event moved = drill.wait_for([process](const Event& event) {
      return event.text == "moved" && event.process == process;
    });
    EXPECT_EQ(moved.value, 1000);
    EXPECT_LT(moved.sequence, taken.sequence) << "taken over means: the callback has returned";
  }
}

TEST(ClockTest, ItNeverGoesBackAndAMoveToTheSameTimeIsTakenOverToo) {
  Drill drill({.manual_clock = true, .start_ns = 500});
  drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    kvdrill_ready();
    ::_exit(kvdrill_serve());
  });
  drill.wait_for(EventKind::kReady);
  drill.board.set_clock(100);
  EXPECT_EQ(drill.wait_for(EventKind::kClock).value, 500);
}

TEST(ClockTest, ALateCallbackHearsOfEarlierMovesOnce) {
  Drill drill({.manual_clock = true, .start_ns = 5});
  drill.board.set_clock(700);
  drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    kvdrill_on_clock(Moved::call, nullptr);
    ::_exit(kvdrill_serve());
  });
  EXPECT_EQ(drill.wait_for(EventKind::kClock).value, 700) << "also the process that came later";
  EXPECT_EQ(drill.wait_for(EventKind::kNote).value, 700);
}

TEST(ClockTest, ACallbackThatWasSetBeforeAttachingIsKept) {
  Drill drill({.manual_clock = true, .start_ns = 5});
  drill.fork_child("one", [] {
    kvdrill_on_clock([](void*, std::int64_t) { ::_exit(1); }, nullptr);
    kvdrill_on_clock(Moved::call, nullptr);
    kvdrill_attach(&kEngine);
    kvdrill_ready();
    ::_exit(kvdrill_serve());
  });
  drill.wait_for(EventKind::kReady);
  EXPECT_TRUE(drill.board.processes().at(1).takes_clock);
  drill.board.set_clock(700);
  EXPECT_EQ(drill.wait_for(EventKind::kNote).value, 700);
}

TEST(ClockTest, WhoHasNoCallbackHasNotTakenTheClock) {
  Drill drill({.manual_clock = true});
  drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    kvdrill_ready();
    ::_exit(kvdrill_serve());
  });
  drill.wait_for(EventKind::kReady);
  EXPECT_FALSE(drill.board.processes().at(1).takes_clock);
}

TEST(ClockTest, TheRealClockIsTheKernels) {
  Drill drill;
  const std::int64_t before = drill.board.clock_now();
  drill.reap(drill.fork_child("one", [] {
    kvdrill_attach(&kEngine);
    kvdrill_note(&note, kvdrill_clock_is_manual(), kvdrill_now(), nullptr);
  }));
  const Event now = drill.wait_for(EventKind::kNote);
  EXPECT_EQ(now.key, 0);
  EXPECT_GE(now.value, before);
  EXPECT_LE(now.value, drill.board.clock_now());
}

}  // namespace
}  // namespace kv::drill
