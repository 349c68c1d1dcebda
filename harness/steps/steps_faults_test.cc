// Steps that are wrong by themselves: one test for each kind of fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/scenario/names.h"
#include "harness/scenario/scenario_test_support.h"

namespace kv::drill {
namespace {

// The number of words, and the first of them, as a message says them.
std::string all_words() {
  return listed(language().words());
}

class StepsWithFaults : public ::testing::TestWithParam<BadInput> {};

TEST_P(StepsWithFaults, AreRefusedWithTheirPlaceAndWhatWasExpected) {
  EXPECT_THAT(faults_of(GetParam().text), ::testing::ElementsAreArray(GetParam().faults));
}

const BadInput kStep[] = {
    {"AnUnknownStep",
     only(R"({strat = "worker"},)"),
     {"7:2: unknown step \"strat\", expected one of " + std::to_string(language().words().size()) +
      " (nearest: start)"}},
    {"AStepWithoutADeed",
     only(R"({id = "x"},)"),
     {"7:1: a step without a deed, expected " + all_words()}},
    {"AnEmptyStep", only("{},"), {"7:1: a step without a deed, expected " + all_words()}},
    {"AStepThatIsNoTable", only(R"("start",)"), {R"(7:1: a step is "start", expected a table)"}},
    {"TwoDeedsInOne",
     only(R"({start = "worker", exit = "worker"},)"),
     {"7:20: start and exit are two steps, expected one table each"}},
    {"AnUnknownKeyOfAStep",
     started(R"({wait = "listener.reply", inn = "worker"},)"),
     {R"(8:27: unknown key "inn" in a wait step)"
      ", expected one of wait, in, thread, hit, key, again, id, deadline (nearest: in)"}},
    {"AnEmptyId",
     only(R"({id = "", start = "worker"},)"),
     {"7:7: id is empty, expected the check's name"}},
    {"AnIdGivenTwice",
     started(R"({id = "a", wait = "listener.reply"},
{id = "a", wait = "listener.cut"},)"),
     {R"(9:7: id "a" is given twice, expected one step by that name)"}},
    {"AnIdOfADefaultCheck",
     only(R"({id = "no_hang", start = "worker"},)"),
     {R"(7:7: id "no_hang" is a check that every drill has, expected another name)"}},
    {"ADeadlineWithoutAUnit",
     only(R"({start = "worker", deadline = 3},)"),
     {R"(7:31: deadline has no unit, expected a text such as "3ms" or "3s")"}},
    {"ADeadlineOutOfRange",
     only(R"({start = "worker", deadline = "2h"},)"),
     {R"(7:31: deadline is out of range, expected up to "1h")"}},
    {"RepeatZeroTimes",
     started(R"({repeat = 0, steps = [{wait = "listener.reply"}]},)"),
     {"8:11: repeat = 0, expected 1 to 1000000"}},
    {"RepeatNothing",
     started("{repeat = 2, steps = []},"),
     {"8:22: steps is empty, expected at least one step"}},
    {"RepeatWithoutSteps",
     started("{repeat = 2},"),
     {R"(8:1: missing key "steps" in a repeat step, expected a list of steps)"}},
    {"AFaultInsideARepeat",
     started("{repeat = 2, steps = [\n"
             "{wait = \"listener.rely\"},\n"
             "]},\n"),
     {R"(9:9: unknown point "listener.rely", expected one of 18 (nearest: listener.reply))"}},
};
INSTANTIATE_TEST_SUITE_P(Step, StepsWithFaults, ::testing::ValuesIn(kStep), name_of);

const BadInput kProcessStep[] = {
    {"AnUnknownProcess",
     only(R"({start = "wroker"},)"),
     {R"(7:10: unknown process "wroker", expected worker)"}},
    {"AProcessThatIsNoText", only("{start = 3},"), {"7:10: start = 3, expected a text"}},
    {"AnUnknownSignal",
     started(R"({signal = "TREM", to = "worker"},)"),
     {R"(8:11: unknown signal "TREM", expected one of 31 (nearest: TERM))"}},
    {"AStartThatFailsWithoutAFailure",
     only(R"({start = "worker", fails = true, code = 0},)"),
     {"7:41: code = 0, which is no failure, expected 1 to 255"}},
    {"ACodeOfAStartThatDoesNotFail",
     only(R"({start = "worker", code = 2},)"),
     {R"(7:20: unknown key "code" in a start step, expected one of start, fails, id, deadline)"}},
    {"OneOfOne",
     started(R"({call = "map"}, {one_of = ["map"], value = "ok"},)"),
     {"8:27: one_of has fewer than two calls, expected at least two"}},
    {"OneOfTheSame",
     started(R"({call = "map"}, {call = "shutdown"},
{one_of = ["map", "shutdown"], value = "ok", others = "ok"},)"),
     {"9:55: the others answer what the one does, expected another text"}},
    {"StderrOfWhatKind",
     started(R"({stderr = "worker"},)"),
     {R"(8:1: stderr of what kind, expected is = "empty" or holds)"}},
    {"StderrOfTwoKinds",
     started(R"({stderr = "worker", is = "empty", holds = "x"},)"),
     {"8:43: is and holds exclude each other, expected one of them"}},
    {"ASignalToNobody",
     started(R"({signal = "TERM"},)"),
     {R"(8:1: missing key "to" in a signal step, expected the name of a process)"}},
    {"AnAdvanceBeyondTheClock",
     started(R"({advance = "9223372036854775807ns"},)"),
     {"8:12: advance by 9223372036854775807ns, expected at most a year (8760h)"}},
    {"AnUnknownWayToExit",
     started(R"({exit = "worker", how = "returns"},)"),
     {R"(8:25: how = "returns")"
      ", expected one of return, exit, _exit, abort, quick_exit (nearest: return)"}},
    {"AnExitCodeOutOfRange",
     started(R"({exit = "worker", code = 256},)"),
     {"8:26: code = 256, expected 0 to 255"}},
    {"AbortHasNoCode",
     started(R"({exit = "worker", how = "abort", code = 1},)"),
     {"8:41: abort has no code, expected the step without it"}},
    {"AFilePlacedAnywhere",
     started(R"({place = "/etc/passwd"},)"),
     {R"(8:10: place = "/etc/passwd" may lie anywhere)"
      R"(, expected a path that begins with {run}/ or {PROCESS.FACT}, without "..")"}},
    {"AFilePlacedAboveTheRun",
     started(R"({place = "{run}/../x"},)"),
     {R"(8:10: place = "{run}/../x" may lie anywhere)"
      R"(, expected a path that begins with {run}/ or {PROCESS.FACT}, without "..")"}},
    {"AFilePlacedBesideTheRun",
     started(R"({place = "{run}x"},)"),
     {R"(8:10: place = "{run}x" may lie anywhere)"
      R"(, expected a path that begins with {run}/ or {PROCESS.FACT}, without "..")"}},
    {"CodeAndSignal",
     started(R"({ended = "worker", code = 0, signal = "KILL"},)"),
     {"8:39: code and signal exclude each other, expected one of them"}},
    {"AnUnknownCommand",
     started(R"({call = "shutdwon", as = "stop"},)"),
     {R"(8:9: unknown command "shutdwon")"
      ", expected one of initialised, map, shutdown (nearest: shutdown)"}},
    {"ArgumentsThatAreNoTable",
     started(R"({call = "shutdown", args = 3},)"),
     {"8:28: args = 3, expected a table"}},
    {"AnArgumentThatCannotBeSent",
     started(R"({call = "map", args = {at = 2026-01-02}},)"),
     {"8:29: a date cannot be sent, expected true or false, a number, a text, a list or a table"}},
    {"AnArgumentThatIsNoNumber",
     started(R"({call = "map", args = {at = nan}},)"),
     {"8:29: nan cannot be sent, expected a number that JSON has too"}},
    {"AValueThatIsNoText",
     started(R"({call = "shutdown"},
{returns = "shutdown", value = 3},)"),
     {"9:32: value = 3, expected a text"}},
};
INSTANTIATE_TEST_SUITE_P(ProcessStep, StepsWithFaults, ::testing::ValuesIn(kProcessStep), name_of);

const BadInput kClientStep[] = {
    {"NoDeed",
     connected(R"({client = "c"},)"),
     {"9:1: a client step without a deed, expected one of connect, send, send_bytes, send_rest, "
      "request, expect, close, half_close"}},
    {"AnUnknownDeed",
     connected(R"({client = "c", snd = {cmd = "map"}},)"),
     {R"(9:16: unknown key "snd" in a client step)"
      ", expected one of client, connect, send, send_bytes, send_rest, request, expect, close, "
      "half_close, id, deadline (nearest: send)"}},
    {"TwoDeeds",
     connected(R"({client = "c", send = {cmd = "map"}, expect = "eof"},)"),
     {"9:38: send and expect are two steps, expected one table each"}},
    {"ConnectToAnUnknownProcess",
     started(R"({client = "c", connect = "wrker"},)"),
     {R"(8:26: unknown process "wrker", expected worker)"}},
    {"ConnectToARelativePath",
     started(R"({client = "c", connect = "x/y"},)"),
     {R"(8:26: connect = "x/y")"
      ", expected a path from the root, or beginning with {run} or {PROCESS.FACT}"}},
    {"AnUnknownTemplate",
     started(R"({client = "c", connect = "{rnu}/x"},)"),
     {R"(8:26: unknown template "{rnu}")"
      ", expected {run} or {PROCESS.FACT} such as {worker.socket}"}},
    {"ATemplateOfAnUnknownProcess",
     started(R"({client = "c", connect = "{wrker.socket}"},)"),
     {R"(8:26: unknown process "wrker", expected worker)"}},
    {"ABraceWithoutAPartner",
     started(R"({client = "c", connect = "/x/{run"},)"),
     {R"(8:26: connect: a brace in "/x/{run" has no partner)"}},
    {"MoreThanTheFrameHas",
     connected(R"({client = "c", send = {cmd = "map"}, first = 400},)"),
     {"9:46: first = 400, expected at most 31, the length of what is sent"}},
    {"ANegativeFirst",
     connected(R"({client = "c", send = {cmd = "map"}, first = -1},)"),
     {"9:46: first = -1, expected at least 0"}},
    {"NoHexadecimalDigits",
     connected(R"({client = "c", send_bytes = "00 0g"},)"),
     {R"(9:29: send_bytes: "g" is no hexadecimal digit, expected pairs as in "00 ff")"}},
    {"NoBytes",
     connected(R"({client = "c", send_bytes = ""},)"),
     {"9:29: send_bytes: no byte, expected some"}},
    {"AnUnknownError",
     connected(R"({client = "c", send = {cmd = "map"}, allow = ["EPIPES"]},)"),
     {R"(9:47: unknown error "EPIPES", expected one of 133 (nearest: EPIPE))"}},
    {"ADateCannotBeSent",
     connected(R"({client = "c", send = {cmd = "map", at = 2026-01-02}},)"),
     {"9:42: a date cannot be sent, expected true or false, a number, a text, a list or a "
      "table"}},
    {"ARequestWithoutAReply",
     connected(R"({client = "c", request = {cmd = "map"}},)"),
     {R"(9:1: missing key "reply" in a client step)"
      R"(, expected what the answer holds, as in {status = "success"})"}},
    {"AnUnknownExpectation",
     connected(R"({client = "c", expect = "eol"},)"),
     {R"(9:25: expect = "eol")"
      R"(, expected "eof", "nothing" or the fields of a reply in braces (nearest: eof))"}},
    {"AnExpectationOfAWrongKind",
     connected(R"({client = "c", expect = 3},)"),
     {R"(9:25: expect = 3, expected "eof", "nothing" or the fields of a reply in braces)"}},
    {"AFlagThatIsFalse",
     connected(R"({client = "c", close = false},)"),
     {"9:24: close = false, expected true or no such step"}},
    {"AFlagThatIsNoFlag",
     connected(R"({client = "c", half_close = "yes"},)"),
     {R"(9:29: half_close = "yes", expected true or false)"}},
    {"AKeyOfAnotherDeed",
     connected(R"({client = "c", expect = "eof", first = 2},)"),
     {R"(9:32: unknown key "first" in a client step)"
      ", expected one of client, expect, id, deadline"}},
};
INSTANTIATE_TEST_SUITE_P(ClientStep, StepsWithFaults, ::testing::ValuesIn(kClientStep), name_of);

const BadInput kMomentStep[] = {
    {"AnUnknownPoint",
     started(R"({wait = "listener.raed.body"},)"),
     {R"(8:9: unknown point "listener.raed.body")"
      ", expected one of 18 (nearest: listener.read.body)"}},
    {"AnUnknownPointWithNothingNear",
     started(R"({wait = "transfer.lease"},)"),
     {R"(8:9: unknown point "transfer.lease")"
      ", expected one of listener.accepted, listener.frame.complete, listener.handler.begin, "
      "listener.read.body, listener.read.header, listener.reply, listener.stop.draining, "
      "listener.stop.begin, vmm.create, vmm.map, vmm.unmap, listener.stop.cancel_reads, "
      "listener.stop.drain, runtime.exit_hook, listener.cut, listener.dispatch, "
      "listener.handler.end, listener.stop.return"}},
    {"AnUnknownEnd",
     started(R"({wait = "vmm.mpa.done"},)"),
     {R"(8:9: unknown point "vmm.mpa.done", expected one of 18 (nearest: vmm.map))"}},
    {"APointHasNoEnd",
     started(R"({wait = "listener.reply.done"},)"),
     {R"(8:9: "listener.reply.done": listener.reply is a point and has no end)"
      ", expected a fault or a step before .done"}},
    {"ANoteHasNoEnd",
     started(R"({wait = "listener.cut.done"},)"),
     {R"(8:9: "listener.cut.done": listener.cut is a note and has no end)"
      ", expected a fault or a step before .done"}},
    {"ABadAddress",
     started(R"({wait = "vmm.map#0"},)"),
     {R"(8:9: "vmm.map#0": the hit is no number from 1 on)"
      ", expected name[key]#hit@process/thread"}},
    {"HoldANote",
     started(R"({hold = "listener.cut"},)"),
     {R"(8:9: "listener.cut" is a note, which nothing can act on)"
      ", expected a point, a fault or a step"}},
    {"FailAPoint",
     started(R"({fail = "listener.reply", code = 2},)"),
     {R"(8:9: "listener.reply" is a point, expected one of vmm.create, vmm.map, vmm.unmap)"}},
    {"FailAStep",
     started(R"({fail = "runtime.exit_hook", code = 2},)"),
     {R"(8:9: "runtime.exit_hook" is a step)"
      ", expected one of vmm.create, vmm.map, vmm.unmap"}},
    {"FailAnEnd",
     started(R"({fail = "vmm.map.done", code = 2},)"),
     {R"(8:9: "vmm.map.done" is the end of a fault)"
      ", expected one of vmm.create, vmm.map, vmm.unmap (nearest: vmm.map)"}},
    {"SkipAFault",
     started(R"({skip = "vmm.map"},)"),
     {R"(8:9: "vmm.map" is a fault)"
      ", expected one of listener.stop.cancel_reads, listener.stop.drain, runtime.exit_hook"}},
    {"SkipAnUnknownStep",
     started(R"({skip = "listener.stop.cancel_raeds"},)"),
     {R"(8:9: unknown step "listener.stop.cancel_raeds")"
      ", expected one of listener.stop.cancel_reads, listener.stop.drain, runtime.exit_hook "
      "(nearest: listener.stop.cancel_reads)"}},
    {"FailWithoutACode",
     started(R"({fail = "vmm.map"},)"),
     {R"(8:1: missing key "code" in a fail step)"
      ", expected a number other than 0, a driver result or an errno value"}},
    {"FailWithCodeZero",
     started(R"({fail = "vmm.map", code = 0},)"),
     {"8:27: code = 0, which is no failure, expected another number"}},
    {"AnUnknownCode",
     started(R"({fail = "vmm.map", code = "CUDA_ERROR_OUT_OF_MEMROY"},)"),
     {R"(8:27: unknown code "CUDA_ERROR_OUT_OF_MEMROY")"
      ", expected one of 162 (nearest: CUDA_ERROR_OUT_OF_MEMORY)"}},
    {"AnUnknownNumberOfTimes",
     started(R"({fail = "vmm.map", code = 2, times = "ever"},)"),
     {R"(8:38: times = "ever", expected a number or "always")"}},
    {"ZeroTimes",
     started(R"({fail = "vmm.map", code = 2, times = 0},)"),
     {"8:38: times = 0, expected at least 1"}},
    {"FromAndHit",
     started(R"({fail = "vmm.map", code = 2, from = 2, hit = 3},)"),
     {"8:37: from and hit mean the same, expected one of them"}},
    {"AnUnknownSignalToCrashWith",
     started(R"({crash = "vmm.map", signal = "SEGFAULT"},)"),
     {R"(8:30: unknown signal "SEGFAULT")"
      ", expected one of 31, such as HUP, INT or QUIT"}},
    {"RunAnUnknownCommand",
     started(R"({run = "shutdowm", at = "listener.reply"},)"),
     {R"(8:8: unknown command "shutdowm")"
      ", expected one of initialised, map, shutdown (nearest: shutdown)"}},
    {"RunNowhere",
     started(R"({run = "shutdown", as = "inner"},)"),
     {R"(8:1: missing key "at" in a run step, expected the name of a point)"}},
    {"ThreadGivenTwice",
     started(R"({wait = "vmm.map/stop", thread = "stop"},)"),
     {R"(8:34: thread is given twice, as a key and in "vmm.map/stop")"}},
    {"ProcessGivenTwice",
     started(R"({wait = "vmm.map@worker", in = "worker"},)"),
     {R"(8:32: in is given twice, as a key and in "vmm.map@worker")"}},
    {"KeyAndHitGivenTwice",
     started(R"({wait = "vmm.map[3]#2", key = 3, hit = 2},)"),
     {R"(8:31: key is given twice, as a key and in "vmm.map[3]#2")",
      R"(8:40: hit is given twice, as a key and in "vmm.map[3]#2")"}},
    {"AnUnknownProcess",
     started(R"({wait = "vmm.map@wroker"},)"),
     {R"(8:9: unknown process "wroker", expected worker)"}},
    {"NoProcessAmongSeveral",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "reader = {role = \"reader\"}\n"
     "[drill]\n"
     "steps = [\n"
     "{start = \"worker\"},\n"
     "{start = \"reader\"},\n"
     "{wait = \"vmm.map\"},\n"
     "]\n",
     {R"(10:1: missing key "in" in a wait step, expected one of worker, reader)"}},
    {"AdvanceWithoutAUnit",
     started("{advance = 5},"),
     {R"(8:12: advance has no unit, expected a text such as "5ms" or "5s")"}},
    {"AdvanceByNothing",
     started(R"({advance = "0s"},)"),
     {"8:12: advance by nothing, expected a duration above 0"}},
    {"AdvanceARealClock",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "clock = \"real\"\n"
     "steps = [\n"
     "{start = \"worker\"},\n"
     "{advance = \"5s\"},\n"
     "]\n",
     {R"(9:12: advance moves the manual clock, expected a drill without clock = "real")"}},
};
INSTANTIATE_TEST_SUITE_P(MomentStep, StepsWithFaults, ::testing::ValuesIn(kMomentStep), name_of);

const BadInput kAssertStep[] = {
    {"OrderOfOne",
     started(R"({order = ["vmm.map"]},)"),
     {"8:10: order has fewer than two moments, expected at least two"}},
    {"OrderOfTheSameTwice",
     started(R"({order = ["vmm.map", "vmm.map@worker"]},)"),
     {R"(8:22: "vmm.map@worker" is in the order twice and cannot come after itself)"
      R"(, expected a hit to tell them apart, as in "name#2")"}},
    {"OrderOfUnknownMoments",
     started(R"({order = ["vmm.mpa", "vmm.map@wroker", 3, "a b"]},)"),
     {R"(8:11: unknown point "vmm.mpa", expected one of 18 (nearest: vmm.map))",
      R"(8:22: unknown process "wroker", expected worker)",
      "8:40: a moment of order is 3, expected a text",
      R"(8:43: "a b": not a name, expected name[key]#hit@process/thread)"}},
    {"CountWithoutANumber",
     started(R"({count = "listener.dispatch"},)"),
     {"8:1: count without a number, expected is, at_least or at_most"}},
    {"CountWithTooManyNumbers",
     started(R"({count = "listener.dispatch", is = 1, at_least = 1},)"),
     {"8:36: is excludes at_least and at_most, expected one or the others"}},
    {"CountWithAnEmptyRange",
     started(R"({count = "listener.dispatch", at_least = 3, at_most = 2},)"),
     {"8:55: at_most = 2, expected no less than at_least, which is 3"}},
    {"CountOfAHit",
     started(R"({count = "listener.dispatch#2", is = 1},)"),
     {R"(8:10: a hit occurs once, expected a moment without "#")"}},
    {"ANegativeCount",
     started(R"({count = "listener.dispatch", is = -1},)"),
     {"8:36: is = -1, expected at least 0"}},
    {"AnEmptyLogLine",
     started(R"({logged = ""},)"),
     {"8:11: logged is empty, expected a part of the line"}},
    {"AFileWithoutAState",
     started(R"({file = "{run}/x"},)"),
     {R"(8:1: missing key "is" in a file step, expected present, absent, socket or same)"}},
    {"AnUnknownState",
     started(R"({file = "{run}/x", is = "abesnt"},)"),
     {R"(8:25: is = "abesnt")"
      ", expected one of present, absent, socket, same (nearest: absent)"}},
    {"AnAbsentFileIsNotRemembered",
     started(R"({file = "{run}/x", is = "absent", as = "a"},)"),
     {"8:40: an absent file cannot be remembered, expected the step without as"}},
    {"TheSameAsWhat",
     started(R"({file = "{run}/x", is = "same"},)"),
     {R"(8:1: missing key "as" in a file step)"
      ", expected the name under which an earlier file step remembered it"}},
    {"ASocketHasNoContents",
     started(R"({place = "{run}/x", contents = "a", socket = true},)"),
     {"8:32: a socket has no contents, expected one of contents and socket"}},
    {"ACardWithoutAnAmount",
     started(R"({card = "worker"},)"),
     {"8:1: card without an amount, expected bytes, handles, mappings or reservations"}},
    {"CardBytesWithoutAUnit",
     started(R"({card = "worker", bytes = 8},)"),
     {R"(8:27: bytes has no unit, expected a text such as "8B" or "8MiB")"}},
};
INSTANTIATE_TEST_SUITE_P(AssertStep, StepsWithFaults, ::testing::ValuesIn(kAssertStep), name_of);

}  // namespace
}  // namespace kv::drill
