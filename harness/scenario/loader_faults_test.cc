// What a file says above its steps, said wrongly: one test for each kind of fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/board/layout.h"
#include "harness/scenario/flow.h"
#include "harness/scenario/scenario_test_support.h"

namespace kv::drill {
namespace {

class FilesWithFaults : public ::testing::TestWithParam<BadInput> {};

TEST_P(FilesWithFaults, AreRefusedWithTheirPlaceAndWhatWasExpected) {
  EXPECT_THAT(faults_of(GetParam().text), ::testing::ElementsAreArray(GetParam().faults));
}

// With more keys of [drill], from line 7 on.
std::string drill(const std::string& keys) {
  return "name = \"x\"\nabout = \"y\"\n[processes]\nworker = {role = \"worker\"}\n[drill]\n"
         "steps = [{start = \"worker\"}]\n" +
         keys;
}
// With other lines of [processes], from line 4 on.
std::string process(const std::string& lines) {
  return "name = \"x\"\nabout = \"y\"\n[processes]\n" + lines +
         "\n[drill]\nsteps = [{start = \"worker\"}]\n";
}

const BadInput kFile[] = {
    {"AnUnknownKeyAtTheTop",
     "name = \"x\"\n"
     "abuot = \"y\"\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "steps = [{start = \"worker\"}]\n",
     {R"(1:1: missing key "about" at the top of the file)"
      ", expected what it shows, in a sentence",
      R"(2:1: unknown key "abuot" at the top of the file)"
      ", expected one of name, about, cases, params, processes, drill, arm, matrix, prove "
      "(nearest: about)"}},
    {"AnEmptyFile",
     "",
     {R"(1:1: missing key "name" at the top of the file, expected the scenario's name)",
      R"(1:1: missing key "about" at the top of the file)"
      ", expected what it shows, in a sentence",
      R"(1:1: missing key "processes" at the top of the file)"
      ", expected [processes] with worker = {role = ...}",
      R"(1:1: missing key "drill" at the top of the file)"
      ", expected [drill] with steps = [...]"}},
    {"AnEmptyName",
     "name = \"\"\n"
     "about = 3\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "steps = [{start = \"worker\"}]\n",
     {"1:8: name is empty, expected the scenario's name", "2:9: about = 3, expected a text"}},
    {"CasesThatAreNoTexts",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "cases = [\"B01\", 2]\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "steps = [{start = \"worker\"}]\n",
     {"3:17: an entry of cases is 2, expected a text"}},
    {"DrillIsNoTable",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "drill = 3\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n",
     {"3:9: drill = 3, expected a table"}},
    {"ADrillWithoutSteps",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "clock = \"real\"\n",
     {R"(5:1: missing key "steps" in [drill], expected a list of steps)"}},
    {"NoStep",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "steps = []\n",
     {"6:9: steps is empty, expected at least one step"}},
    {"UnknownDrillKey",
     only("{start = \"worker\"}]\n"
          "deadlin = \"3s\"\n"
          "waive = [\n"),
     {R"(8:1: unknown key "deadlin" in [drill])"
      ", expected one of steps, clock, deadline, events, card, small_root, waive, expect, "
      "not_under, reason "
      "(nearest: deadline)"}},
};
static_assert(kMostStarts == kMaxProcesses - 1);

TEST(Files, WithMoreProcessesThanTheBoardHasPlacesForAreRefused) {
  std::string processes, starts;
  for (int i = 0; i < 256; ++i) {
    processes += "p" + std::to_string(i) + " = {role = \"worker\"}\n";
    starts += "{start = \"p" + std::to_string(i) + "\"},\n";
  }
  const auto faults = faults_of("name = \"x\"\nabout = \"y\"\n[processes]\n" + processes +
                                "[drill]\nsteps = [\n" + starts + "]\n");
  EXPECT_THAT(faults,
              ::testing::Contains("259:1: 256 processes, expected at most 255: the board has "
                                  "no place for more"));
}

INSTANTIATE_TEST_SUITE_P(File, FilesWithFaults, ::testing::ValuesIn(kFile), name_of);

const BadInput kDrill[] = {
    {"ARootOfNothing", drill("small_root = 0\n"), {"7:14: a root of 0B, expected up to 1GiB"}},
    {"AnUnknownClock",
     drill("clock = \"manuel\"\n"),
     {R"(7:9: clock = "manuel", expected one of manual, real (nearest: manual))"}},
    {"ADeadlineWithoutAUnit",
     drill("deadline = 10\n"),
     {R"(7:12: deadline has no unit, expected a text such as "10ms" or "10s")"}},
    {"ADeadlineWithAWrongUnit",
     drill("deadline = \"10sec\"\n"),
     {R"(7:12: deadline: "10sec" is not a duration)"
      R"(, expected a whole number and ns, us, ms, s, min or h, as in "250ms")"}},
    {"ADeadlineOutOfRange",
     drill("deadline = \"0s\"\n"),
     {R"(7:12: deadline is out of range, expected up to "1h")"}},
    {"TooFewEvents", drill("events = 3\n"), {"7:10: events = 3, expected 256 to 4194304"}},
    {"ACardWithoutUnits",
     drill("card = {devices = 0, bytes = 1024, size = 3}\n"),
     {"7:19: devices = 0, expected 1 to 16",
      R"(7:30: bytes has no unit, expected a text such as "1024B" or "1024MiB")",
      R"(7:36: unknown key "size" in card, expected one of devices, bytes)"}},
    {"ACardSmallerThanAPage",
     drill("card = {bytes = \"1MiB\"}\n"),
     {"7:17: a card of 1MiB, expected 2MiB to 4TiB"}},
    {"ACardLargerThanAnyCard",
     drill("card = {bytes = \"5TiB\"}\n"),
     {"7:17: a card of 5TiB, expected 2MiB to 4TiB"}},
    {"MoreStartsThanTheBoardHasPlacesFor",
     only("{repeat = 128, steps = [\n{start = \"worker\"},\n{exit = \"worker\"},\n"
          "{start = \"worker\"},\n{exit = \"worker\"},\n]},"),
     {"10:1: the start of a process number 256, expected at most 255: the board has no place for "
      "more"}},
    {"AClockThatMovesFartherThanItHolds",
     started("{repeat = 100, steps = [\n{advance = \"8760h\"},\n]},\n{advance = \"1ns\"},"),
     {"11:1: with this advance the clock has moved by more than 100 years, expected at most that "
      "(876000h) in a drill"}},
    {"AClockThatIsMovedAThousandTimes",
     started("{repeat = 1000000, steps = [\n{repeat = 1000000, steps = [\n{repeat = 1000000, "
             "steps = [\n{advance = \"1h\"},\n]},\n]},\n]},"),
     {"11:1: with this advance the clock has moved by more than 100 years, expected at most that "
      "(876000h) in a drill"}},
    {"AnUnknownWaiver",
     drill("waive = [{check = \"no_hangs\", reason = \"r\"}]\n"),
     {R"(7:19: check = "no_hangs")"
      ", expected one of no_dispatch_after_stop, nothing_left, no_crash, no_hang, prompt_exit, "
      "clean_logs (nearest: no_hang)"}},
    {"AWaiverWithoutAReason",
     drill("waive = [{check = \"no_hang\"}]\n"),
     {R"(7:10: missing key "reason" in waive, expected why the check is not wanted here)"}},
    {"AWaiverGivenTwice",
     drill("waive = [{check = \"no_hang\", reason = \"a\"}, {check = \"no_hang\", reason = "
           "\"b\"}]\n"),
     {"7:54: no_hang is waived twice, expected one waiver"}},
    {"AnUnknownSanitizer",
     drill("not_under = [\"asan\", \"ubsan\"]\n"),
     {R"(7:22: unknown sanitizer "ubsan", expected one of asan, tsan)"}},
    {"NoSanitizer",
     drill("not_under = []\n"),
     {R"(7:13: not_under is empty, expected "asan" or "tsan")"}},
    {"AnExpectedFailureWithoutAReason",
     drill("expect = \"fail\"\n"),
     {R"(7:10: expect = "fail" without a reason, expected reason = "why it fails")"}},
    {"AnUnknownExpectation",
     drill("expect = \"fails\"\n"),
     {R"(7:10: expect = "fails", expected one of pass, fail (nearest: fail))"}},
    {"AReasonForNothing",
     drill("reason = \"because\"\n"),
     {R"(7:10: a reason for nothing, expected expect = "fail" or not_under with it)"}},
};
INSTANTIATE_TEST_SUITE_P(Drill, FilesWithFaults, ::testing::ValuesIn(kDrill), name_of);

const BadInput kProcess[] = {
    {"AnUnknownRole",
     process(R"(worker = {role = "wroker"})"),
     {R"(4:18: unknown role "wroker")"
      ", expected one of producer, reader, worker (nearest: worker)"}},
    {"NoRole",
     process("worker = {rank = 0}"),
     {R"(4:10: missing key "role" in process worker)"
      ", expected one of producer, reader, worker"}},
    {"NoTable", process(R"(worker = "worker")"), {R"(4:10: worker = "worker", expected a table)"}},
    {"AnUnknownKey",
     process(R"(worker = {role = "worker", rnak = 1})"),
     {R"(4:28: unknown key "rnak" in process worker)"
      ", expected one of role, rank, stage, device, ipc, arguments, environment, limits (nearest: "
      "rank)"}},
    {"AnIpcNameThatIsAPath",
     process(R"(worker = {role = "worker", ipc = "../x"})"),
     {R"(4:34: ipc = "../x", expected at most 64 letters, digits, "_" or "-")"}},
    {"AnArgumentWithANul",
     process(R"(worker = {role = "worker", arguments = ["a\u0000b"]})"),
     {"4:40: an argument holds a NUL, which no program is given, expected text without"}},
    {"AVariableWithANul",
     process(R"(worker = {role = "worker", environment = {A = "a\u0000b"}})"),
     {"4:47: a variable holds a NUL, which no program is given, expected text without"}},
    {"ANegativeRank",
     process(R"(worker = {role = "worker", rank = -1})"),
     {"4:35: rank = -1, expected 0 to 1024"}},
    {"ADeviceThatTheCardLacks",
     process(R"(worker = {role = "worker", device = 1})"),
     {"4:37: device = 1, but the card has one device, expected card = {devices = 2}"}},
    {"ANameThatCannotBeAddressed",
     process(R"(worker = {role = "worker"}
"a/b" = {role = "worker"})"),
     {R"(5:1: "a/b" is no name of a process, expected letters, digits, "_" and "-")"}},
    {"ANameOfTheHarness",
     process(R"(worker = {role = "worker"}
supervisor = {role = "worker"})"),
     {R"(5:1: "supervisor" is a name of the harness, expected another)"}},
    {"ALongName",
     process(R"(worker = {role = "worker"}
wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww =)"
             R"( {role = "worker"})"),
     {"5:1: the process's name has 48 characters, expected at most 47"}},
    {"AVariableOfTheHarness",
     process(R"(worker = {role = "worker", environment = {KVDRILL_BOARD = "3", A = 1}})"),
     {"4:43: KVDRILL_BOARD is the harness's, expected another variable",
      "4:68: A = 1, expected a text"}},
    {"ArgumentsThatAreNoTexts",
     process(R"(worker = {role = "worker", arguments = ["a", 1]})"),
     {"4:46: an entry of arguments is 1, expected a text"}},
    {"NoProcess",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[processes]\n"
     "[drill]\n"
     "steps = [{start = \"worker\"}]\n",
     {"3:1: [processes] is empty, expected worker = {role = ...}"}},
    {"NoProcessesAtAll",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[drill]\n"
     "steps = [{start = \"worker\"}, {call = \"shutdown\"}]\n",
     {R"(1:1: missing key "processes" at the top of the file)"
      ", expected [processes] with worker = {role = ...}"}},
    {"AProcessNeverStarted",
     process(R"(worker = {role = "worker"}
other = {role = "reader"})"),
     {R"(5:1: process other is never started, expected {start = "other"})"}},
};
INSTANTIATE_TEST_SUITE_P(Process, FilesWithFaults, ::testing::ValuesIn(kProcess), name_of);

}  // namespace
}  // namespace kv::drill
