// Steps that can never be met where they stand: one test for each kind of fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/scenario/scenario_test_support.h"

namespace kv::drill {
namespace {

class StepsOutOfPlace : public ::testing::TestWithParam<BadInput> {};

TEST_P(StepsOutOfPlace, AreRefusedWithTheirPlaceAndWhatWasExpected) {
  EXPECT_THAT(faults_of(GetParam().text), ::testing::ElementsAreArray(GetParam().faults));
}

const BadInput kFlow[] = {
    {"WaitBeforeStart",
     only(R"({wait = "vmm.map"},)"),
     {R"(7:9: worker has not been started here, expected {start = "worker"} before)"}},
    {"CallBeforeStart",
     only(R"({call = "shutdown"},)"),
     {R"(7:9: worker has not been started here, expected {start = "worker"} before)"}},
    {"StartTwice",
     started(R"({start = "worker"},)"),
     {"8:10: worker was started in line 7 and has not ended, expected exit or ended before"}},
    {"AStartThatFailsOfWhatLives",
     started(R"({start = "worker", fails = true},)"),
     {"8:10: worker was started in line 7 and has not ended, expected exit or ended before"}},
    {"WaitBehindAStartThatFails",
     only(R"({start = "worker", fails = true},
{wait = "vmm.map"},)"),
     {"8:9: worker ended in line 7, expected the step before that"}},
    {"OneOfACallThatWasTaken",
     started("{call = \"map\"}, {call = \"shutdown\"},\n"
             "{one_of = [\"map\", \"shutdown\"], value = \"ok\"},\n"
             "{returns = \"map\"},\n"),
     {R"(10:12: the answer of "map" was taken in line 9, expected one such step)"}},
    {"ExitTwice",
     started(R"({exit = "worker"},
{exit = "worker"},)"),
     {"9:9: worker ended in line 8, expected the step before that"}},
    {"WaitBehindTheEnd",
     started(R"({exit = "worker"},
{wait = "vmm.map"},)"),
     {"9:9: worker ended in line 8, expected the step before that"}},
    {"CallBehindTheEnd",
     started(R"({exit = "worker"},
{call = "shutdown", in = "worker"},)"),
     {"9:26: worker ended in line 8, expected the step before that"}},
    {"AnOrderBehindTheEnd",
     started(R"({exit = "worker"},
{hold = "vmm.map"},)"),
     {"9:9: worker ended in line 8 and is not started again, expected the order before that"}},
    {"EndedBeforeStart",
     only(R"({ended = "worker"},)"),
     {R"(7:10: worker has not been started here, expected {start = "worker"} before)"}},
    {"EndedTwice",
     started(R"({ended = "worker"},
{ended = "worker"},)"),
     {"9:10: worker ended in line 8 already, expected one such step"}},
    {"EndedBehindExit",
     started(R"({exit = "worker"},
{ended = "worker"},)"),
     {"9:10: worker ended in line 8 already, expected one such step"}},
    {"StartBeforeTheEndOfWhatWasToldToEnd",
     started(R"({exit = "worker", wait = false},
{start = "worker"},)"),
     {"9:10: worker was told to end in line 8 and has not ended, expected ended before"}},
    {"StartBeforeTheEndOfWhatWasKilled",
     started(R"({signal = "KILL", to = "worker"},
{start = "worker"},)"),
     {"9:10: worker was killed in line 8 and has not ended, expected ended before"}},
    {"ExitOfWhatWasToldToEnd",
     started(R"({exit = "worker", wait = false},
{exit = "worker"},)"),
     {"9:9: worker was told to end in line 8, expected ended"}},
    {"CallOfWhatWasToldToEnd",
     started(R"({exit = "worker", wait = false},
{call = "shutdown"},)"),
     {"9:9: worker was told to end in line 8, expected the step before that"}},
    {"AKilledProcessDoesNothing",
     started(R"({signal = "KILL", to = "worker"},
{call = "shutdown"},)"),
     {"9:9: worker was killed in line 8, expected the step before that"}},
    {"AKilledProcessHasNoCode",
     started(R"({signal = "SIGKILL", to = "worker"},
{ended = "worker", code = 0},)"),
     {R"(9:27: worker was killed in line 8 and has no exit code, expected signal = "KILL")"}},
    {"AKilledProcessEndsByThatSignal",
     started(R"({signal = "KILL", to = "worker"},
{ended = "worker", signal = "SEGV"},)"),
     {R"(9:29: worker was killed in line 8, expected signal = "KILL")"}},
    {"SignalBeforeStart",
     only(R"({signal = "TERM", to = "worker"},)"),
     {R"(7:24: worker has not been started here, expected {start = "worker"} before)"}},
    {"ConnectBeforeStart",
     only(R"({client = "c", connect = "worker"},)"),
     {R"(7:26: worker has not been started here, expected {start = "worker"} before)"}},
    {"ConnectToAFactBeforeStart",
     only(R"({client = "c", connect = "{worker.socket}"},)"),
     {R"(7:26: worker has not been started here, expected {start = "worker"} before)"}},
    {"ConnectBehindTheEnd",
     started(R"({exit = "worker"},
{client = "c", connect = "worker"},)"),
     {"9:26: worker ended in line 8, expected the step before that"}},
    {"ConnectTwice",
     connected(R"({client = "c", connect = "worker"},)"),
     {R"(9:11: client "c" was connected in line 8 and not closed)"
      ", expected close before, or another name"}},
    {"SendBeforeConnect",
     connected(R"({client = "d", send = {cmd = "map"}},)"),
     {R"(9:11: client "d" is not connected, expected connect before)"}},
    {"SendBehindClose",
     connected(R"({client = "c", close = true},
{client = "c", send = {cmd = "map"}},)"),
     {R"(10:11: client "c" was closed in line 9, expected connect before)"}},
    {"SendBehindHalfClose",
     connected(R"({client = "c", half_close = true},
{client = "c", send = {cmd = "map"}},)"),
     {R"(10:11: client "c" closed its sending half in line 9, expected no send behind it)"}},
    {"HalfCloseTwice",
     connected(R"({client = "c", half_close = true},
{client = "c", half_close = true},)"),
     {R"(10:29: client "c" closed its sending half in line 9 already)"
      ", expected one such step"}},
    {"CloseTwice",
     connected(R"({client = "c", close = true},
{client = "c", close = true},)"),
     {R"(10:11: client "c" was closed in line 9, expected connect before)"}},
    {"ExpectOnARefusedClient",
     started(R"({client = "c", connect = "worker", refused = true},
{client = "c", expect =)"
             R"( "eof"},)"),
     {R"(9:11: client "c" was refused in line 8, expected connect before)"}},
    {"ExpectBehindTheEnd",
     connected(R"({client = "c", expect = "eof"},
{client = "c", expect = {status = "success"}},)"),
     {R"(10:11: client "c" saw its end in line 9, expected nothing behind it)"}},
    {"EndTwice",
     connected(R"({client = "c", expect = "eof"},
{client = "c", expect = "eof"},)"),
     {R"(10:11: client "c" saw its end in line 9, expected nothing behind it)"}},
    {"NoRestToSend",
     connected(R"({client = "c", send = {cmd = "map"}},
{client = "c", send_rest = true},)"),
     {R"(10:28: client "c" holds nothing back, expected a send with first before)"}},
    {"RestSentTwice",
     connected("{client = \"c\", send = {cmd = \"map\"}, first = 4},\n"
               "{client = \"c\", send_rest = true},\n"
               "{client = \"c\", send_rest = true},\n"),
     {R"(11:28: client "c" holds nothing back, expected a send with first before)"}},
    {"SendBeforeTheRest",
     connected(R"({client = "c", send = {cmd = "map"}, first = 4},
{client = "c", send = {cmd =)"
               R"( "map"}},)"),
     {R"(10:11: client "c" holds back the rest of what it sent in line 9)"
      ", expected send_rest before"}},
    {"ReturnsBeforeCall",
     started(R"({returns = "stop"},)"),
     {R"(8:12: no call is named "stop", expected a call by that name before)"}},
    {"ReturnsOfAMisspelledCall",
     started(R"({call = "shutdown", as = "stop"},
{returns = "sotp"},)"),
     {R"(9:12: no call is named "sotp")"
      ", expected a call by that name before (nearest: stop)"}},
    {"ReturnsTwice",
     started("{call = \"shutdown\", as = \"stop\"},\n"
             "{returns = \"stop\"},\n"
             "{returns = \"stop\"},\n"),
     {R"(10:12: the answer of "stop" was taken in line 9, expected one such step)"}},
    {"PendingBehindReturns",
     started("{call = \"shutdown\", as = \"stop\"},\n"
             "{returns = \"stop\"},\n"
             "{pending = \"stop\"},\n"),
     {R"(10:12: the answer of "stop" was taken in line 9, expected one such step)"}},
    {"TwoCallsOfOneName",
     started(R"({call = "shutdown"},
{call = "shutdown"},)"),
     {R"(9:9: "shutdown" is the name of a call in line 8 whose answer was not taken)"
      ", expected another name by as"}},
    {"ReleaseBeforeHold",
     started(R"({release = "park"},)"),
     {R"(8:12: nothing is held as "park", expected a hold by that name before)"}},
    {"ReleaseOfAMisspelledHold",
     started(R"({hold = "vmm.map", as = "park"},
{release = "prak"},)"),
     {R"(9:12: nothing is held as "prak")"
      ", expected a hold by that name before (nearest: park)"}},
    {"ReleaseTwice",
     started("{hold = \"vmm.map\", as = \"park\"},\n"
             "{release = \"park\"},\n"
             "{release = \"park\"},\n"),
     {R"(10:12: "park" was released in line 9 already, expected one such step)"}},
    {"ReleaseOfAFailure",
     started(R"({fail = "vmm.map", code = 2, as = "f"},
{release = "f"},)"),
     {R"(9:12: nothing is held as "f", expected a hold by that name before)"}},
    {"TwoHoldsOfOneName",
     started(R"({hold = "vmm.map"},
{hold = "vmm.map"},)"),
     {R"(9:9: "vmm.map" is the name of an order in line 8, expected another name by as)"}},
    {"CountBeforeStart",
     only(R"({count = "vmm.map", is = 0},)"),
     {R"(7:10: worker has not been started here, expected {start = "worker"} before)"}},
    {"LoggedBeforeStart",
     only(R"({logged = "x"},)"),
     {R"(7:11: worker has not been started here, expected {start = "worker"} before)"}},
    {"OrderBeforeStart",
     only(R"({order = ["vmm.map", "vmm.unmap"]},)"),
     {R"(7:10: worker has not been started here, expected {start = "worker"} before)"}},
    {"CardBehindTheEnd",
     started(R"({exit = "worker"},
{card = "worker", bytes = 0},)"),
     {"9:9: worker ended in line 8, expected the step before that"}},
    {"SameAsNothing",
     started(R"({file = "{run}/x", is = "present", as = "before"},
{file = "{run}/x", is =)"
             R"( "same", as = "befoer"},)"),
     {R"(9:38: no file was remembered as "befoer")"
      ", expected a file step with that as before (nearest: before)"}},
    {"AFactBeforeStart",
     only(R"({file = "{worker.socket}", is = "absent"},)"),
     {R"(7:9: worker has not been started here, expected {start = "worker"} before)"}},
    {"TheSecondRoundOfARepeat",
     started("{repeat = 2, steps = [\n"
             "{exit = \"worker\"},\n"
             "]},\n"),
     {"9:9: worker ended in line 9, expected the step before that [in the second round of the "
      "repeat]"}},
    {"MoreStartsThanTheBoardHasPlacesFor",
     only("{repeat = 256, steps = [\n"
          "{start = \"worker\"}, {exit = \"worker\"},\n"
          "]},\n"),
     {"8:1: the start of a process number 256, expected at most 255: the board has no place for "
      "more"}},
    {"ACallLeftOpenByARepeat",
     started("{repeat = 2, steps = [\n"
             "{call = \"shutdown\"},\n"
             "]},\n"),
     {R"(9:9: "shutdown" is the name of a call in line 9 whose answer was not taken)"
      ", expected another name by as [in the second round of the repeat]"}},
};
INSTANTIATE_TEST_SUITE_P(Flow, StepsOutOfPlace, ::testing::ValuesIn(kFlow), name_of);

}  // namespace
}  // namespace kv::drill
