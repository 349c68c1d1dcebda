// What each step becomes: its deed, and its line for people.
#include "harness/steps/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "harness/scenario/scenario_test_support.h"
#include "harness/steps/client.h"
#include "harness/steps/give.h"
#include "harness/wire/wire.h"

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// The steps behind the start of the worker and client "c".
std::vector<Step> steps_of(const std::string& lines) {
  auto steps = loaded(connected(lines)).drills.front().steps;
  if (steps.size() > 2) steps.erase(steps.begin(), steps.begin() + 2);
  return steps;
}
std::vector<std::string> texts_of(const std::string& lines) {
  std::vector<std::string> texts;
  for (const Step& step : steps_of(lines)) texts.push_back(step.text);
  return texts;
}
template <typename T>
T only_deed(const std::string& line) {
  const auto steps = steps_of(line);
  EXPECT_EQ(steps.size(), 1u);
  const T* deed = steps.empty() ? nullptr : steps[0].deed.as<T>();
  if (deed != nullptr) return *deed;
  ADD_FAILURE() << "another deed: " << line;
  return {};
}

TEST(StepsTest, EveryStepHasALineForPeople) {
  EXPECT_THAT(texts_of(R"(
{hold = "vmm.map", as = "park"},
{hold = "vmm.unmap", thread = "t", key = 4, hit = 2},
{wait = "listener.reply"},
{wait = "listener.reply", again = true},
{release = "park"},
{fail = "vmm.map", code = 2, times = "always"},
{fail = "vmm.create", code = 3},
{fail = "vmm.create", code = 3, times = 2},
{pretend = "vmm.unmap"},
{pretend = "vmm.unmap", from = 2, times = 3},
{skip = "runtime.exit_hook"},
{run = "shutdown", at = "listener.reply", as = "inner"},
{freeze = "vmm.create", as = "frozen"},
{call = "shutdown", as = "stop"},
{call = "shutdown"},
{pending = "stop"},
{returns = "stop", value = "done"},
{returns = "shutdown", text = "late"},
{advance = "1500ms"},
{order = ["vmm.map", "vmm.map.done#2"]},
{count = "vmm.map", is = 3},
{count = "vmm.map", at_least = 1, at_most = 2},
{logged = "x"},
{file = "{run}/a", is = "present", as = "before"},
{file = "{run}/a", is = "same", as = "before"},
{file = "{run}/b", is = "absent"},
{file = "{run}/b", is = "socket"},
{place = "{run}/c", socket = true},
{card = "worker", bytes = "8MiB", handles = 1, mappings = 2, reservations = 3},
{repeat = 3, steps = [{wait = "vmm.map"}]},
{crash = "listener.accepted"},
{signal = "SIGTERM", to = "worker"},
{ended = "worker", signal = "TERM"},
{start = "worker"},
{exit = "worker", wait = false},
{ended = "worker"},
{start = "worker"},
{exit = "worker", how = "_exit", code = 3},
{start = "worker", fails = true},
{start = "worker", fails = true, code = 2, text = "in use"},
{start = "worker"},
{stderr = "worker", is = "empty"},
{stderr = "worker", holds = "x"},
{call = "map"},
{call = "shutdown"},
{one_of = ["map", "shutdown"], value = "ok", others = "error"},)"),
              ElementsAreArray({
                  "hold vmm.map in worker as park",
                  "hold vmm.unmap[4]#2 in worker, thread t",
                  "wait listener.reply in worker",
                  "wait listener.reply in worker, once more",
                  "release park",
                  "fail vmm.map in worker with 2, always",
                  "fail vmm.create in worker with 3",
                  "fail vmm.create in worker with 3, 2 times",
                  "pretend vmm.unmap in worker",
                  "pretend vmm.unmap#2 in worker, 3 times",
                  "skip runtime.exit_hook in worker",
                  "run shutdown at listener.reply in worker as inner",
                  "freeze at vmm.create in worker as frozen",
                  "call shutdown in worker as stop",
                  "call shutdown in worker",
                  "pending stop",
                  "returns stop = done",
                  "returns shutdown, saying \"late\"",
                  "advance 1500ms",
                  "order vmm.map < vmm.map.done#2 in worker",
                  "count vmm.map in worker is 3",
                  "count vmm.map in worker at least 1 at most 2",
                  "logged \"x\" in worker",
                  "file {run}/a is present",
                  "file {run}/a is the same as before",
                  "file {run}/b is absent",
                  "file {run}/b is a socket",
                  "place a socket at {run}/c",
                  "card of worker, bytes 8MiB, handles 1, mappings 2, reservations 3",
                  "repeat 3 times",
                  "crash at listener.accepted in worker by SEGV",
                  "signal TERM to worker",
                  "worker ended by signal TERM",
                  "start worker",
                  "exit worker, without waiting",
                  "worker ended",
                  "start worker",
                  "exit worker by _exit with code 3",
                  "start worker, which fails",
                  "start worker, which fails with code 2, saying \"in use\"",
                  "start worker",
                  "stderr of worker is empty",
                  "stderr of worker holds \"x\"",
                  "call map in worker",
                  "call shutdown in worker",
                  "one of map, shutdown returns ok, the others error",
              }));
}

TEST(StepsTest, EveryClientStepHasALineForPeople) {
  EXPECT_THAT(
      texts_of(R"(
{client = "d", connect = "{run}/x.sock", refused = true},
{client = "c", send = {cmd = "map"}},
{client = "c", send = {no = "command"}, first = 4},
{client = "c", send_rest = true},
{client = "c", send_bytes = "00 ff"},
{client = "c", expect = {status = "success"}},
{client = "c", expect = "nothing"},
{client = "c", half_close = true},
{client = "c", expect = "eof"},
{client = "c", close = true},)"),
      ElementsAre("d connects to {run}/x.sock and is refused", "c sends map",
                  "c sends a request, the first 4 of 34 bytes", "c sends the rest",
                  "c sends 2 bytes", "c gets {\"status\": \"success\"}", "c sees nothing",
                  "c closes its sending half", "c sees the end of the connection", "c closes"));
}

TEST(StepsTest, ASendIsAFrameOfThePickledRequest) {
  const auto step = only_deed<SendStep>(
      R"({client = "c", send = {cmd = "map", offsets = [0, 2], deep = {a = true}}, allow = ["EPIPE", "ECONNRESET"]})");
  const Value::Dict request = {
      {"cmd", "map"}, {"offsets", Value::List{0, 2}}, {"deep", Value::Dict{{"a", true}}}};
  EXPECT_EQ(step.bytes, frame(pickle(Value(request))));
  EXPECT_FALSE(step.first);
  EXPECT_THAT(step.allow, ElementsAre(EPIPE, ECONNRESET));
}

TEST(StepsTest, BytesAreSentAsTheyAre) {
  const auto step =
      only_deed<SendStep>(R"({client = "c", send_bytes = "0000 0005 ff", first = 5})");
  EXPECT_EQ(step.bytes, std::string("\0\0\0\5\xff", 5));
  EXPECT_EQ(step.first, 5u);
}

TEST(StepsTest, ARequestIsTwoStepsAndTheCheckIsTheSecond) {
  const auto steps = steps_of(
      R"({id = "served", client = "c", request = {cmd = "map"}, reply = {status = "success"}, deadline = "1s"})");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].deed.as<SendStep>()->bytes, frame(pickle(Value(Value::Dict{{"cmd", "map"}}))));
  EXPECT_EQ(steps[0].id, "");
  EXPECT_EQ(steps[1].deed.as<ExpectReplyStep>()->fields, Value(Value::Dict{{"status", "success"}}));
  EXPECT_EQ(steps[1].id, "served");
  EXPECT_EQ(steps[0].deadline_ns, steps[1].deadline_ns);
}

TEST(StepsTest, AMomentMayBeWrittenInOneWordOrInKeys) {
  EXPECT_THAT(texts_of(R"({wait = "vmm.map[-3]#2@worker/stop"},
{wait = "vmm.map", key = -3, hit = 2, in = "worker", thread = "stop"})"),
              ::testing::Each("wait vmm.map[-3]#2 in worker, thread stop"));
}

TEST(StepsTest, TheOnlyProcessNeedsNoName) {
  EXPECT_THAT(texts_of(R"({wait = "vmm.map"}, {call = "shutdown"}, {logged = "x"},
{order = ["vmm.map", "vmm.unmap"]})"),
              ::testing::Each(::testing::EndsWith(" in worker")));
}

TEST(StepsTest, OrdersActOnceAndSkipsAlways) {
  EXPECT_EQ(only_deed<GiveStep>(R"({hold = "vmm.map"})").order.times, 1u);
  EXPECT_EQ(only_deed<GiveStep>(R"({hold = "vmm.map", times = "always"})").order.times, 0u);
  EXPECT_EQ(only_deed<GiveStep>(R"({skip = "runtime.exit_hook"})").order.times, 0u);
  EXPECT_EQ(only_deed<GiveStep>(R"({skip = "runtime.exit_hook", times = 2})").order.times, 2u);
  EXPECT_FALSE(only_deed<GiveStep>(R"({hold = "vmm.map"})").order.may_miss);
  EXPECT_TRUE(only_deed<GiveStep>(R"({hold = "vmm.map", may_miss = true})").order.may_miss);
}

TEST(StepsTest, AFailureHasACodeByNumberOrName) {
  const auto code = [](const std::string& text) {
    return only_deed<GiveStep>("{fail = \"vmm.map\", code = " + text + "}").order.code;
  };
  EXPECT_EQ(code("2"), 2);
  EXPECT_EQ(code("-1"), -1);
  EXPECT_EQ(code("\"CUDA_ERROR_OUT_OF_MEMORY\""), 2);
  EXPECT_EQ(code("\"EAGAIN\""), EAGAIN);
  const auto from =
      only_deed<GiveStep>(R"({fail = "vmm.map", code = 2, from = 3, times = "always"})");
  EXPECT_EQ(from.order.at.hit, 3u);
  EXPECT_EQ(from.order.times, 0u);
}

TEST(StepsTest, WithoutANameAnOrderIsCalledAsItsMomentIsWritten) {
  EXPECT_EQ(only_deed<GiveStep>(R"({hold = "vmm.map#2", in = "worker"})").order.as, "vmm.map#2");
  EXPECT_EQ(only_deed<GiveStep>(R"({run = "shutdown", at = "vmm.map"})").order.as, "shutdown");
}

TEST(StepsTest, ArgumentsAreADictionary) {
  const auto arguments = [](const std::string& more) {
    return to_json(
        only_deed<GiveStep>(R"({run = "map", at = "vmm.map")" + more + "}").order.arguments);
  };
  EXPECT_EQ(arguments(R"(, args = {offsets = [0], deep = {x = "y"}})"),
            R"({"offsets": [0], "deep": {"x": "y"}})");
  EXPECT_EQ(arguments(""), "{}");
}

TEST(StepsTest, EndsSayCodeOrSignal) {
  const auto texts = texts_of(R"({ended = "worker", code = 3},
{start = "worker"}, {ended = "worker", signal = "SIGSEGV"},
{start = "worker"}, {ended = "worker"},
{start = "worker"}, {exit = "worker", how = "abort"},)");
  EXPECT_THAT(texts,
              ElementsAre("worker ended with code 3", "start worker", "worker ended by signal SEGV",
                          "start worker", "worker ended", "start worker", "exit worker by abort"));
}

TEST(StepsTest, AProcessThatWasToldToEndIsThereUntilItsEndWasWaitedFor) {
  EXPECT_THAT(faults_of(connected(R"({exit = "worker", wait = false},
{wait = "vmm.map"}, {client = "c", expect = "eof"}, {advance = "5s"}, {hold = "vmm.unmap"},
{signal = "KILL", to = "worker"}, {ended = "worker", signal = "KILL"},
{start = "worker"}, {exit = "worker", wait = false}, {ended = "worker", code = 0},
{start = "worker"}, {exit = "worker", wait = true},)")),
              ::testing::IsEmpty());
}

TEST(StepsTest, ARepeatHoldsItsSteps) {
  const auto steps = steps_of(R"({repeat = 2, steps = [
    {client = "d", connect = "worker"},
    {repeat = 3, steps = [{id = "inner", client = "d", request = {cmd = "map"}, reply = {}}]},
    {client = "d", close = true},
  ]})");
  EXPECT_EQ(steps.at(0).rounds, 2u);
  ASSERT_EQ(steps.at(0).body.size(), 3u);
  const Step& inner = steps.at(0).body[1];
  EXPECT_EQ(inner.rounds, 3u);
  ASSERT_EQ(inner.body.size(), 2u);
  EXPECT_EQ(inner.body[1].id, "inner");
}

TEST(StepsTest, WhatIsFreeAgainMayBeUsedAgain) {
  EXPECT_THAT(faults_of(connected(R"(
{call = "shutdown"}, {returns = "shutdown"}, {call = "shutdown"}, {returns = "shutdown"},
{hold = "vmm.map"}, {release = "vmm.map"}, {hold = "vmm.map"}, {release = "vmm.map"},
{client = "c", close = true}, {client = "c", connect = "worker"},
{client = "r", connect = "worker", refused = true}, {client = "r", connect = "worker"},
{exit = "worker"}, {hold = "vmm.create", may_miss = true}, {start = "worker"}, {exit = "worker"},
{client = "after", connect = "worker", refused = true},)")),
              ::testing::IsEmpty());
}

TEST(StepsTest, WhatWasRecordedMayBeLookedAtBehindTheEnd) {
  EXPECT_THAT(faults_of(started(R"({exit = "worker"},
{count = "vmm.map", is = 0}, {order = ["vmm.map", "vmm.unmap"]}, {logged = "x"},
{file = "{worker.socket}", is = "absent"},)")),
              ::testing::IsEmpty());
}

}  // namespace
}  // namespace kv::drill
