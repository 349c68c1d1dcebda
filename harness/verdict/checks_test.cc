#include "harness/verdict/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <utility>

namespace kv::drill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<std::string> kNotes = {"listener.cut", "listener.dispatch",
                                         "listener.handler.end", "listener.stop.return",
                                         kExpiredNote};

// A record of one process, "worker", pid 100, index 1, made up event by event.
class RecordOf {
 public:
  RecordOf() {
    record.processes.resize(2);
    record.processes[1].name = "worker";
    record.processes[1].pid = 100;
    record.notes = kNotes;
  }
  RecordOf& event(EventKind kind, std::string_view name, std::int64_t key = 0,
                  std::int64_t value = 0, std::string_view text = {}) {
    Event made;
    made.sequence = record.events.size();
    made.kind = kind;
    made.process = kind == EventKind::kSupervisor ? 0 : 1;
    made.name = name;
    made.key = key;
    made.value = value;
    made.text = text;
    record.events.push_back(made);
    return *this;
  }
  RecordOf& note(std::string_view name, std::int64_t key = 0, std::int64_t value = 0,
                 std::string_view text = {}) {
    return event(EventKind::kNote, name, key, value, text);
  }
  Record::Ended& ended(std::optional<End> end, bool gentle = true) {
    Record::Ended made;
    made.process = "worker";
    made.pid = 100;
    made.end = end;
    made.owes_everything = gentle;
    record.ended.push_back(std::move(made));
    return record.ended.back();
  }
  CheckResult check(std::string_view name) const {
    for (CheckResult& result : default_checks(record)) {
      if (result.name == name) return result;
    }
    ADD_FAILURE() << "no check of that name: " << name;
    return {};
  }

  Record record;
};

constexpr End kExit0{false, 0, false, false};

TEST(ChecksTest, AllSixAreReportedInOrderAlsoWhenTheyPass) {
  const auto results = default_checks(RecordOf().record);
  ASSERT_EQ(results.size(), default_check_names().size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].name, default_check_names()[i]);
    EXPECT_EQ(results[i].verdict, Verdict::kPass) << results[i].why;
    EXPECT_THAT(results[i].why, IsEmpty());
  }
}

TEST(NoDispatchAfterStopTest, AnExactStopPasses) {
  RecordOf run;
  run.note("listener.dispatch", 1, 0, "map")
      .note("listener.cut", 1)
      .note("listener.handler.end", 1);
  run.note("listener.stop.return", 1, 0);
  EXPECT_EQ(run.check("no_dispatch_after_stop").verdict, Verdict::kPass);
}

TEST(NoDispatchAfterStopTest, ADispatchAfterTheCutFails) {
  RecordOf run;
  run.note("listener.cut", 1).note("listener.dispatch", 1, 0, "map_to_kv_tensors");
  const auto result = run.check("no_dispatch_after_stop");
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(result.why, AllOf(HasSubstr("worker"), HasSubstr("map_to_kv_tensors"),
                                HasSubstr("event 1"), HasSubstr("event 0")));
}

TEST(NoDispatchAfterStopTest, AnotherGenerationMayDispatchAfterTheCut) {
  RecordOf run;
  run.note("listener.cut", 1).note("listener.dispatch", 2).note("listener.handler.end", 2);
  EXPECT_EQ(run.check("no_dispatch_after_stop").verdict, Verdict::kPass);
}

TEST(NoDispatchAfterStopTest, AnotherProcessMayDispatchAfterTheCut) {
  RecordOf run;
  run.note("listener.cut", 1).note("listener.dispatch", 1).note("listener.handler.end", 1);
  run.record.processes.resize(3);
  run.record.events[1].process = run.record.events[2].process = 2;
  EXPECT_EQ(run.check("no_dispatch_after_stop").verdict, Verdict::kPass);
}

TEST(NoDispatchAfterStopTest, DoneWhileAHandlerRunsFails) {
  RecordOf run;
  run.note("listener.dispatch", 1, 0, "unmap").note("listener.cut", 1);
  run.note("listener.stop.return", 1, 0).note("listener.handler.end", 1);
  const auto result = run.check("no_dispatch_after_stop");
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(result.why, AllOf(HasSubstr("said done"), HasSubstr("1 handler was running"),
                                HasSubstr("'unmap'")));
}

TEST(NoDispatchAfterStopTest, DoneWithoutACutFails) {
  RecordOf run;
  run.note("listener.stop.return", 1, 0);
  const auto result = run.check("no_dispatch_after_stop");
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(result.why, HasSubstr("no cut before"));
}

TEST(NoDispatchAfterStopTest, NotDrainedWhileAHandlerRunsPasses) {
  RecordOf run;
  run.note("listener.dispatch", 1).note("listener.cut", 1).note("listener.stop.return", 1, 1);
  EXPECT_EQ(run.check("no_dispatch_after_stop").verdict, Verdict::kPass);
}

TEST(NoDispatchAfterStopTest, TornEventsAreSaid) {
  RecordOf run;
  run.note("listener.cut", 1);
  run.record.events[0].torn = true;
  const auto result = run.check("no_dispatch_after_stop");
  EXPECT_EQ(result.verdict, Verdict::kPass);
  EXPECT_THAT(result.why, HasSubstr("1 event is torn"));
}

TEST(NothingLeftTest, WhatAGentlyEndedProcessHoldsOfTheCardFails) {
  RecordOf run;
  run.ended(kExit0);
  run.record.card.owners = {{100, "worker", 4194304, 2, 1, 0, 0, 1}};
  const auto result = run.check("nothing_left");
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(result.why, AllOf(HasSubstr("4194304 bytes"), HasSubstr("2 handles"),
                                HasSubstr("1 mapping"), Not(HasSubstr("reservation"))));
}

TEST(NothingLeftTest, EachKindOfHoldingAloneFails) {
  for (std::uint64_t Holding::*kind :
       {&Holding::bytes, &Holding::handles, &Holding::mappings, &Holding::reservations,
        &Holding::allocations, &Holding::contexts}) {
    RecordOf run;
    run.ended(kExit0);
    Holding held{100, "worker", 0, 0, 0, 0, 0, 0};
    held.*kind = 1;
    run.record.card.owners = {held};
    EXPECT_EQ(run.check("nothing_left").verdict, Verdict::kFail);
  }
}

TEST(NothingLeftTest, AKilledProcessMayHoldWhatTheDriverCleansUp) {
  RecordOf run;
  run.ended(End{true, SIGKILL, false, false}, false).expected.signal = SIGKILL;
  run.record.card.owners = {{100, "worker", 4194304, 2, 1, 1, 1, 1}};
  EXPECT_EQ(run.check("nothing_left").verdict, Verdict::kPass);
}

Holding holding(int pid, std::uint64_t handles) {
  Holding held;
  held.pid = pid;
  held.process = "worker";
  held.handles = handles;
  return held;
}

TEST(NothingLeftTest, WhatAChildOfTheDrillsProcessesHoldsFails) {
  RecordOf run;
  run.ended(kExit0);
  run.record.processes.push_back({"worker.fork-1", 101, true, false, false, {}});
  run.record.card.owners = {holding(101, 1), holding(102, 1)};
  EXPECT_THAT(run.check("nothing_left").why,
              AllOf(HasSubstr("worker.fork-1 (pid 101), a child of worker ended holding 1 handle"),
                    HasSubstr("a child of worker (pid 102) ended holding 1 handle")));
}

TEST(NothingLeftTest, WhatTheCardHasInUseAndNobodyHeldFails) {
  RecordOf run;
  run.ended(kExit0);
  run.record.card.devices = {{1 << 30, 0}, {1 << 30, 4096}};
  run.record.card.owners = {holding(100, 0)};
  EXPECT_THAT(run.check("nothing_left").why, HasSubstr("device 1 has 4096 bytes in use"));
}

TEST(NothingLeftTest, WhatTheCardHasInUseIsNotJudgedAfterAKillOrAnExport) {
  RecordOf run;
  run.record.card.devices = {{1 << 30, 4096}};
  run.record.card.owners = {holding(100, 0)};
  run.ended(End{true, SIGKILL, false, false}, false).expected.signal = SIGKILL;
  EXPECT_EQ(run.check("nothing_left").verdict, Verdict::kPass);
  run.record.ended[0].owes_everything = true;
  EXPECT_EQ(run.check("nothing_left").verdict, Verdict::kFail);
  run.record.card.owners[0].exports = 1;
  EXPECT_EQ(run.check("nothing_left").verdict, Verdict::kPass);
}

TEST(NothingLeftTest, ADriverWithoutALedgerIsSaid) {
  RecordOf run;
  run.record.card_looked_at = false;
  EXPECT_EQ(run.check("nothing_left").verdict, Verdict::kPass);
  EXPECT_THAT(run.check("nothing_left").why, HasSubstr("card not looked at"));
}

TEST(NothingLeftTest, FilesDescriptorsThreadsAndProcessesFail) {
  const auto why = [](auto change) {
    RecordOf run;
    run.ended(kExit0);
    change(run.record);
    const auto result = run.check("nothing_left");
    EXPECT_EQ(result.verdict, Verdict::kFail);
    return result.why;
  };
  EXPECT_THAT(why([](Record& r) { r.files_left = {"s/kvcached-tp-x/"}; }),
              HasSubstr("s/kvcached-tp-x/"));
  EXPECT_THAT(why([](Record& r) { r.default_left = {"/dev/shm/x"}; }), HasSubstr("/dev/shm/x"));
  EXPECT_THAT(why([](Record& r) { r.processes_left = {"7 sh"}; }), HasSubstr("7 sh"));
  EXPECT_THAT(why([](Record& r) { r.ended[0].descriptors_left = {"9 -> socket:[1]"}; }),
              HasSubstr("9 -> socket:[1]"));
  EXPECT_THAT(why([](Record& r) {
                r.ended[0].threads_left = {"keeper (tid 7)", "x (tid 8)"};
              }),
              HasSubstr("2 threads after its shutdown: keeper (tid 7), x (tid 8)"));
  EXPECT_THAT(why([](Record& r) { r.card_lost = true; }), HasSubstr("its ledger was removed"));
}

TEST(NothingLeftTest, LongListsAreCutWithTheirCount) {
  RecordOf run;
  for (int i = 0; i < 9; ++i) run.record.files_left.push_back("f" + std::to_string(i));
  EXPECT_THAT(run.check("nothing_left").why, AllOf(HasSubstr("f4"), HasSubstr("and 4 more")));
}

TEST(NothingLeftTest, ARunCutShortIsNotJudged) {
  RecordOf run;
  run.record.files_left = {"f"};
  run.record.cut_short = 0;
  const auto result = run.check("nothing_left");
  EXPECT_EQ(result.verdict, Verdict::kNotJudged);
  EXPECT_EQ(result.why, "the drill was cut short");
}

TEST(NoCrashTest, TheEndThatTheDrillNamesPasses) {
  RecordOf run;
  run.ended(kExit0);
  run.ended(End{false, 3, false, false}).expected.code = 3;
  run.ended(End{true, SIGABRT, true, false}, false).expected.signal = SIGABRT;
  run.ended(End{true, SIGKILL, false, false}, false).expected.any = true;
  const auto result = run.check("no_crash");
  EXPECT_EQ(result.verdict, Verdict::kPass) << result.why;
}

TEST(NoCrashTest, ExitWithACodeIsNoSignalOfThatNumber) {
  RecordOf by_code;
  by_code.ended(End{false, SIGSEGV, false, false}).expected.signal = SIGSEGV;
  EXPECT_EQ(by_code.check("no_crash").verdict, Verdict::kFail);
  RecordOf by_signal;
  by_signal.ended(End{true, 11, false, false}).expected.code = 11;
  EXPECT_EQ(by_signal.check("no_crash").verdict, Verdict::kFail);
}

TEST(NoCrashTest, ACrashIsReportedWithItsFrames) {
  RecordOf run;
  run.ended(End{true, SIGSEGV, false, false}, false).crash = "\n  kv::boom(int) (boom.cc:3)";
  run.record.ended[0].last_words = "oh";
  const auto result = run.check("no_crash");
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_EQ(result.why,
            "worker ended by SIGSEGV, expected exit code 0, at\n  kv::boom(int) (boom.cc:3)\n"
            "its last words: 'oh'");
}

TEST(NoCrashTest, AChildThatCrashedFailsWithItsPidAndParent) {
  RecordOf run;
  run.ended(kExit0);
  run.event(EventKind::kCrash, "crash", 0, SIGSEGV, "lib.so+0x1 work");
  run.record.processes[1].pid = 100;
  EXPECT_EQ(run.check("no_crash").verdict, Verdict::kPass) << "its own end says what it was";
  run.record.processes[1] = {"worker.fork-2", 101, true, false, false, {}};
  EXPECT_THAT(
      run.check("no_crash").why,
      HasSubstr("worker.fork-2 (pid 101), a child of worker crashed by SIGSEGV, at\n  work"));
}

TEST(NoCrashTest, AnEndThatNobodyAskedForFailsWhateverTheCode) {
  RecordOf run;
  run.ended(kExit0).asked = false;
  EXPECT_EQ(run.check("no_crash").why, "worker ended by exit code 0, before the drill told it to");
  run.record.ended[0].ready = false;
  run.record.ended[0].last_words = "no driver";
  EXPECT_EQ(run.check("no_crash").why,
            "worker ended by exit code 0, before it was ready; its last words: 'no driver'");
}

TEST(NoCrashTest, AnEndThatIsNotKnownFails) {
  RecordOf run;
  run.ended(End{false, 0, false, true});
  EXPECT_EQ(run.check("no_crash").verdict, Verdict::kFail);
}

TEST(NoCrashTest, AProcessThatIsStillThereFails) {
  RecordOf run;
  run.ended(std::nullopt);
  EXPECT_THAT(run.check("no_crash").why, HasSubstr("still there"));
}

TEST(NoHangTest, AHangFailsWithItsReasonAndPlace) {
  RecordOf run;
  run.record.hang = "nobody can move";
  run.record.hang_position = {"a.toml", 4, 2};
  const auto result = run.check("no_hang");
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_EQ(result.why, "nobody can move");
  EXPECT_EQ(result.position.line, 4);
}

TEST(PromptExitTest, AWaitThatRanOutFails) {
  RecordOf run;
  run.note("clock.wait", 0, 0, "listener drain").note("clock.expired", 0, 0, "listener drain");
  const auto result = run.check("prompt_exit");
  EXPECT_EQ(result.verdict, Verdict::kFail);
  EXPECT_THAT(result.why, AllOf(HasSubstr("worker"), HasSubstr("listener drain")));
}

TEST(PromptExitTest, AWaitThatTheDrillLetRunOutPasses) {
  RecordOf run;
  run.event(EventKind::kSupervisor, kAdvanceEvent, 0, 5'000'000'000);
  run.note("clock.expired", 0, 0, "listener drain");
  EXPECT_EQ(run.check("prompt_exit").verdict, Verdict::kPass);
}

TEST(PromptExitTest, AMoveOfTheClockDoesNotExcuseWhatWasBeforeIt) {
  RecordOf run;
  run.note("clock.expired", 0, 0, "listener drain");
  run.event(EventKind::kSupervisor, kAdvanceEvent, 0, 5'000'000'000);
  EXPECT_EQ(run.check("prompt_exit").verdict, Verdict::kFail);
}

TEST(PromptExitTest, ARunCutShortIsNotJudged) {
  RecordOf run;
  run.note("clock.expired", 0, 0, "listener drain");
  run.record.cut_short = 1;
  EXPECT_EQ(run.check("prompt_exit").verdict, Verdict::kNotJudged);
}

TEST(NotJudgedTest, WhatAnEngineMakesNoNoteOfIsNoPass) {
  for (const std::string& left_out : kNotes) {
    RecordOf run;
    std::erase(run.record.notes, left_out);
    const std::string name = left_out == kExpiredNote ? "prompt_exit" : "no_dispatch_after_stop";
    for (const CheckResult& check : default_checks(run.record)) {
      EXPECT_EQ(check.verdict, check.name == name ? Verdict::kNotJudged : Verdict::kPass)
          << check.name << " without " << left_out;
    }
    EXPECT_EQ(run.check(name).why, "the engine makes no note " + left_out);
  }
}

TEST(NotJudgedTest, TakesNothingFromAPassAndAFailureStaysOne) {
  const CheckResult open{"open", Verdict::kNotJudged, "nobody looked", {}};
  EXPECT_EQ(worst_of({open}), Verdict::kPass);
  EXPECT_EQ(worst_of({open, {"x", Verdict::kFail, "why", {}}}), Verdict::kFail);
}

TEST(CleanLogsTest, WarningsAndErrorsFailInfoDoesNot) {
  for (const std::int64_t severity : {0, 1, 2}) {
    RecordOf run;
    run.event(EventKind::kLog, "log", severity, 0, "page 7 quarantined");
    const auto result = run.check("clean_logs");
    EXPECT_EQ(result.verdict, severity == 0 ? Verdict::kPass : Verdict::kFail);
    if (severity > 0) {
      EXPECT_THAT(result.why, HasSubstr("page 7 quarantined"));
    }
  }
}

TEST(CleanLogsTest, WhatTheDrillExpectsToBeLoggedPasses) {
  RecordOf run;
  run.event(EventKind::kLog, "log", 2, 0, "listener: not drained at exit");
  run.event(EventKind::kLog, "log", 1, 0, "something else");
  run.record.log_allowed = {{"worker", "not drained at exit"}};
  EXPECT_THAT(run.check("clean_logs").why,
              AllOf(HasSubstr("something else"), Not(HasSubstr("not drained"))));
}

TEST(CleanLogsTest, WhatOneProcessMayLogAnotherMayNot) {
  RecordOf run;
  run.event(EventKind::kLog, "log", 2, 0, "listener: not drained at exit");
  run.record.log_allowed = {{"other", "not drained at exit"}};
  EXPECT_EQ(run.check("clean_logs").verdict, Verdict::kFail);
}

TEST(UnexcusedTest, WhatAKilledProcessCouldNotRemoveIsExcusedWithTheWayToIt) {
  const std::vector<std::string> left = {"kvcached-tp-x/", "kvcached-tp-x/w0.sock",
                                         "kvcached-tp-x/w1.sock", "other"};
  EXPECT_EQ(unexcused("/r/s", left, {"/r/s/kvcached-tp-x/w0.sock"}),
            (std::vector<std::string>{"kvcached-tp-x/w1.sock", "other"}));
  EXPECT_EQ(unexcused("/r/s", left, {"/r/s/kvcached-tp-x"}),
            (std::vector<std::string>{"kvcached-tp-x/w0.sock", "kvcached-tp-x/w1.sock", "other"}));
  EXPECT_EQ(unexcused("/r/s", left, {}), left);
}

TEST(SignalNameTest, NamesAndNumbers) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(77), "signal 77");
  EXPECT_EQ(to_string(End{false, 11, false, false}), "exit code 11");
  EXPECT_EQ(to_string(End{true, 11, true, false}), "SIGSEGV (core)");
}

}  // namespace
}  // namespace kv::drill
