// kvworker as a drill sees it: a program of the engine contract, on the fake card.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/board/testing.h"
#include "kvcore/listener/listener_testing.h"

namespace kv {
namespace {

using drill::Action;
using drill::Board;
using drill::Drill;
using drill::Event;
using drill::EventKind;
using drill::Order;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::TempDir;
using testing::text_of;

const std::string kWorker = KVDRILL_BUILD_DIR "/kvworker";
const std::string kCard = KVDRILL_BUILD_DIR "/card/libcuda.so.1";

// Runs a shell command; its output and wait status.
std::pair<std::string, int> output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe)) {
    text.append(part.data(), n);
  }
  return {text, ::pclose(pipe)};
}

TEST(KvworkerTest, DescribesItselfWithAndWithoutTheDriversPoints) {
  const auto [own, own_status] = output_of(kWorker + " --describe");
  EXPECT_EQ(own_status, 0);
  const auto json = nlohmann::json::parse(own);
  EXPECT_THAT(json["points"], Contains("listener.read.body"));
  EXPECT_THAT(json["faults"], Contains("vmm.map"));
  EXPECT_THAT(json["steps"], Contains("listener.stop.cancel_reads"));
  EXPECT_THAT(json["notes"], Contains("listener.cut"));
  EXPECT_THAT(own, ::testing::Not(HasSubstr("driver.cuMemMap")));
  const auto [both, both_status] = output_of(kWorker + " --describe --driver " + kCard);
  EXPECT_EQ(both_status, 0);
  EXPECT_THAT(both, HasSubstr("driver.cuMemMap"));
  const auto [wrong, wrong_status] = output_of(kWorker + " --describe --driver /nonexistent");
  EXPECT_EQ(WEXITSTATUS(wrong_status), 2);
  EXPECT_THAT(wrong, HasSubstr("/nonexistent"));
}

TEST(KvworkerTest, SaysWhichArgumentItDoesNotTake) {
  const auto said = [](const std::string& arguments) {
    const auto [text, status] = output_of(kWorker + " --ipc t " + arguments);
    EXPECT_EQ(WEXITSTATUS(status), 2) << text;
    return text;
  };
  EXPECT_THAT(said("--bogus"), HasSubstr("--bogus"));
  EXPECT_THAT(said("--rank x"), HasSubstr("--rank"));
  EXPECT_THAT(said("--drain-limit 5"), HasSubstr("--drain-limit"));
  EXPECT_THAT(said("--role cook"), HasSubstr("--role"));
  EXPECT_THAT(said("--rank -3"), HasSubstr("rank"));
}

class WorkerDrillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "points are compiled out";
  }

  void start(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{
        "--name",        "worker",     "--rank",         "0",         "--stage",  "0",
        "--ipc",         "wt",         "--device",       "0",         "--driver", kCard,
        "--socket-root", root_.path(), "--segment-root", root_.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    pid_ = drill_.start(kWorker, "worker", arguments);
    drill_.wait_for(EventKind::kReady);
    for (const Event& event : drill_.all(EventKind::kAnnounced, "socket")) socket_ = event.text;
  }
  std::uint32_t call(const std::string& command, const std::string& arguments = "{}") {
    EXPECT_TRUE(drill_.board.call("worker", command, arguments, command, ++calls_));
    return calls_;
  }
  Event returned(std::uint32_t id) {
    return drill_.wait_for(
        [id](const Event& event) { return event.kind == EventKind::kReturn && event.value == id; });
  }
  std::string answer(const std::string& command, const std::string& arguments = "{}") {
    const Event event = returned(call(command, arguments));
    return (event.key == 0 ? "" : "error: ") + std::string(event.text);
  }
  int leave(const char* how = "return", int code = 0) {
    EXPECT_TRUE(drill_.board.tell_exit("worker", how, code));
    return drill_.exit_code(pid_);
  }
  static Message map_request() {
    return {{"cmd", "map_to_kv_tensors"}, {"offsets", Value::List{std::int64_t{0}}}};
  }
  Event reached(const std::string& point) { return drill_.wait_for(EventKind::kPoint, point); }

  TempDir root_;
  Board::Options options_{.manual_clock = true};
  Drill drill_{options_};
  pid_t pid_ = 0;
  std::uint32_t calls_ = 0;
  std::string socket_;
};

TEST_F(WorkerDrillTest, ServesShutsDownAndLeavesNothing) {
  start();
  RawClient client;
  ASSERT_EQ(client.connect(socket_), 0);
  client.send(map_request());
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
  EXPECT_EQ(answer("initialised"), "yes");
  EXPECT_EQ(answer("shutdown"), "done");
  EXPECT_EQ(answer("initialised"), "no");
  EXPECT_EQ(leave("return", 3), 3);
  EXPECT_TRUE(root_.empty());
  const auto labels = drill_.board.processes().at(1).threads;
  EXPECT_THAT(labels, Contains(::testing::Field(&drill::ThreadInfo::label, "listener.w0")));
}

TEST_F(WorkerDrillTest, TheExitHookClearsUpForAMainThatDoesNot) {
  start();
  EXPECT_EQ(leave(), 0);
  EXPECT_TRUE(root_.empty());
  EXPECT_EQ(drill_.all(EventKind::kPoint, "runtime.teardown").size(), 1u);
}

TEST_F(WorkerDrillTest, ShutdownWaitsForAHandlerInsideTheDriver) {
  start();
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "driver.cuMemMap"});
  RawClient client;
  ASSERT_EQ(client.connect(socket_), 0);
  client.send(map_request());
  reached("driver.cuMemMap");
  const auto shutdown = call("shutdown");
  reached("listener.stop.draining");
  EXPECT_TRUE(client.ended());
  drill_.board.set_clock(drill_.board.clock_now() + 4'999'999'999);
  drill_.board.release(hold);
  EXPECT_EQ(returned(shutdown).text, "done");
  EXPECT_LT(drill_.all(EventKind::kNote, "listener.handler.end").front().sequence,
            drill_.all(EventKind::kNote, "listener.stop.return").front().sequence);
  EXPECT_EQ(leave(), 0);
}

TEST_F(WorkerDrillTest, TheDrillsClockEndsItsDrain) {
  start({"--drain-limit", "250ms"});
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "listener.handler.begin"});
  RawClient client;
  ASSERT_EQ(client.connect(socket_), 0);
  client.send(map_request());
  reached("listener.handler.begin");
  const auto shutdown = call("shutdown");
  drill_.wait_for([](const Event& event) {
    return event.name == "clock.wait" && event.text == "listener.stop.drain";
  });
  drill_.board.set_clock(drill_.board.clock_now() + 250'000'000);
  EXPECT_EQ(returned(shutdown).text, "not_drained");
  drill_.board.release(hold);
  EXPECT_EQ(answer("shutdown"), "done");
  EXPECT_EQ(leave(), 0);
}

TEST_F(WorkerDrillTest, ShutdownOnTheHandlersOwnThreadIsNotDrainedAtOnce) {
  start();
  drill_.board.give({.action = Action::kRun,
                     .site = "listener.handler.begin",
                     .command = "shutdown",
                     .arguments = "{}",
                     .call_id = 77});
  RawClient client;
  ASSERT_EQ(client.connect(socket_), 0);
  client.send(map_request());
  EXPECT_EQ(returned(77).text, "not_drained");
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
  EXPECT_EQ(leave(), 0);
  EXPECT_TRUE(root_.empty());
}

TEST_F(WorkerDrillTest, ItsCommandsDoWhatTheySay) {
  start();
  EXPECT_EQ(answer("map", R"({"offsets": [0, 2097152]})"), "[0,2097152]");
  EXPECT_EQ(answer("map", R"({"offsets": [0]})"), "[]");
  EXPECT_EQ(answer("write_stamp", R"({"layer": 1, "offset": 8, "value": 4711})"), "ok");
  EXPECT_EQ(answer("read_stamp", R"({"layer": 1, "offset": 8})"), "4711");
  EXPECT_EQ(nlohmann::json::parse(answer("counts"))["mapped_pages"], 8);
  EXPECT_EQ(answer("unmap", R"({"offsets": [2097152]})"), "ok");
  EXPECT_EQ(nlohmann::json::parse(answer("counts"))["mapped_pages"], 4);
  EXPECT_THAT(answer("map", R"({"offsets": [1]})"), HasSubstr("error: "));
  EXPECT_THAT(answer("map", R"({})"), HasSubstr("error: "));
  EXPECT_THAT(answer("map", R"(not json)"), HasSubstr("error: "));
  EXPECT_EQ(answer("start_listener", R"({"rank": 1})"), "ok");
  EXPECT_THAT(std::string(drill_.wait_for(EventKind::kAnnounced, "socket_1_0").text),
              HasSubstr("w1.sock"));
  EXPECT_EQ(answer("stop_listener", R"({"rank": 1})"), "done");
  EXPECT_THAT(answer("start_listener", R"({"rank": -1})"), HasSubstr("error: "));
  EXPECT_EQ(answer("engine_shutdown", R"({"throws": true})"), "ok");
  EXPECT_EQ(answer("shutdown"), "done");
  reached("engine.shutdown");
  EXPECT_EQ(leave(), 0);
}

TEST_F(WorkerDrillTest, AProducerBuildsStampsSharesAndDropsCaches) {
  start({"--role", "producer"});
  EXPECT_THAT(socket_, HasSubstr("t0.sock"));
  EXPECT_EQ(answer("build_cache"), "1");
  EXPECT_EQ(answer("build_cache", R"({"bytes": 2097152, "shared": true})"), "2");
  EXPECT_THAT(answer("build_cache", R"({"bytes": 5})"), HasSubstr("error: "));
  EXPECT_EQ(answer("stamp_cache", R"({"cache": 2, "value": 5})"), "ok");
  EXPECT_THAT(answer("stamp_cache", R"({"cache": 9, "value": 5})"), HasSubstr("cache 9"));
  RawClient client;
  ASSERT_EQ(client.connect(socket_), 0);
  client.send({{"cmd", "open_cache"}, {"cache", 2}});
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
  EXPECT_EQ(answer("cache_leases", R"({"cache": 2})"), "1");
  client.close();
  EXPECT_EQ(answer("drop_cache", R"({"cache": 2})"), "done");
  EXPECT_EQ(answer("drop_caches"), "done");
  EXPECT_EQ(answer("shutdown"), "done");
  EXPECT_EQ(leave(), 0);
  EXPECT_TRUE(root_.empty());
}

TEST_F(WorkerDrillTest, AReaderReadsWhatItsProducerStampedAndSaysWhichPageIsNot) {
  const TempDir card;  // one for both
  ::setenv("KVDRILL_CARD", card.path().c_str(), 1);
  start({"--role", "producer"});
  EXPECT_EQ(answer("build_cache", R"({"shared": true})"), "1");
  EXPECT_EQ(answer("stamp_cache", R"({"cache": 1, "value": 40})"), "ok");
  const pid_t reader = drill_.start(kWorker, "reader",
                                    {"--name", "reader", "--role", "reader", "--rank", "1", "--ipc",
                                     "wt", "--driver", kCard, "--socket-root", root_.path()});
  drill_.wait_for(
      [](const Event& event) { return event.kind == EventKind::kReady && event.process == 2; });
  const auto ask = [this](const std::string& command, const std::string& arguments) {
    EXPECT_TRUE(drill_.board.call("reader", command, arguments, command, ++calls_));
    const Event event = returned(calls_);
    return (event.key == 0 ? "" : "error: ") + std::string(event.text);
  };
  EXPECT_THAT(ask("verify_cache", R"({"cache": 1, "value": 40})"), HasSubstr("not open"));
  EXPECT_EQ(ask("open_cache", R"({"cache": 1})"), "ok");
  EXPECT_EQ(ask("verify_cache", R"({"cache": 1, "value": 40})"), "ok");
  EXPECT_THAT(ask("verify_cache", R"({"cache": 1, "value": 41})"), HasSubstr("page 0"));
  EXPECT_EQ(ask("release_cache", R"({"cache": 1})"), "ok");
  EXPECT_THAT(ask("release_cache", R"({"cache": 1})"), HasSubstr("not open"));
  EXPECT_THAT(ask("open_cache", R"({"cache": 1, "rank": 7})"), HasSubstr("t7.sock"));
  EXPECT_THAT(ask("drop_cache", R"({"cache": 1})"), HasSubstr("no role of a producer"));
  EXPECT_TRUE(drill_.board.tell_exit("reader", "return", 0));
  EXPECT_EQ(drill_.exit_code(reader), 0);
  EXPECT_EQ(leave(), 0);
  EXPECT_TRUE(root_.empty());
}

TEST_F(WorkerDrillTest, ABroadcastSaysHowItWentForEachPeer) {
  start();
  EXPECT_EQ(answer("start_listener", R"({"rank": 1})"), "ok");
  EXPECT_EQ(answer("broadcast", R"({"request": {"cmd": "kv_tensors_created"},
                                   "peers": [{"rank": 0}, {"rank": 1}, {"rank": 2}]})"),
            R"(["success","success","unavailable"])");
  EXPECT_EQ(answer("broadcast", R"({"request": {"cmd": "dance"}, "peers": [{"rank": 0}]})"),
            R"(["operation_failed"])");
  EXPECT_THAT(answer("broadcast", R"({"request": 1, "peers": []})"), HasSubstr("request"));
  EXPECT_THAT(answer("broadcast", R"({"request": {"x": 1.5}, "peers": []})"), HasSubstr("1.5"));
  EXPECT_EQ(leave(), 0);
}

TEST_F(WorkerDrillTest, ACacheGivesBlocksOutAndTakesThemBack) {
  start();
  EXPECT_THAT(answer("alloc", R"({"n": 1})"), HasSubstr("it has no cache"));
  EXPECT_EQ(answer("make_cache", R"({"pages": 2, "record": true, "budget": "b",
                                     "budget_bytes": 16777216, "removes_budget": true})"),
            "ok");
  EXPECT_THAT(answer("make_cache"), HasSubstr("already_exists"));
  EXPECT_THAT(answer("make_cache", R"({"group": 1})"), HasSubstr("it has no tensors"));
  EXPECT_EQ(answer("reserve", R"({"n": 2})"), "ok");
  EXPECT_EQ(answer("alloc", R"({"n": 3})"), "[0,1,2]");
  EXPECT_EQ(answer("occupancy"), "[[0,3]]");
  EXPECT_EQ(answer("alloc", R"({"n": 6})"), "miss");
  EXPECT_EQ(answer("budget_bytes"), "own=8388608 all=8388608");
  EXPECT_EQ(answer("read_record"), "total=16777216 used=8388608 ready=0 revision=0");
  EXPECT_EQ(answer("request_limit", R"({"bytes": 8388608})"), "1");
  EXPECT_EQ(answer("free", R"({"blocks": [1]})"), "ok");
  EXPECT_THAT(answer("free", R"({"blocks": [1]})"), HasSubstr("free already"));
  EXPECT_EQ(answer("reserve", R"({"n": 1})"), "ok");
  EXPECT_EQ(answer("free_reserved"), "ok");
  EXPECT_EQ(answer("set_limit", R"({"pages": 2, "revision": 1})"), "applied");
  EXPECT_EQ(answer("set_limit", R"({"pages": 1, "revision": 0})"), "stale");
  EXPECT_EQ(answer("clear"), "ok");
  EXPECT_EQ(answer("trim"), "ok");
  EXPECT_THAT(answer("cache_counts"), HasSubstr("total="));
  EXPECT_THAT(answer("second_runtime"), HasSubstr("was not shut down"));
  EXPECT_EQ(answer("close_cache"), "done");
  EXPECT_THAT(answer("budget_bytes"), HasSubstr("it has no cache"));
  EXPECT_THAT(answer("read_record"), HasSubstr("not_found"));
  EXPECT_EQ(answer("shutdown"), "done");
  EXPECT_EQ(leave(), 0);
  EXPECT_TRUE(root_.empty());
}

TEST_F(WorkerDrillTest, AForkedChildThatExitsLeavesTheCachesAlone) {
  start();
  EXPECT_EQ(answer("make_cache", R"({"pages": 2, "record": true})"), "ok");
  EXPECT_EQ(answer("alloc", R"({"n": 4})"), "[0,1,2,3]");
  EXPECT_EQ(answer("exit_in_fork"), "exit 0");
  EXPECT_EQ(answer("read_record"), "total=16777216 used=8388608 ready=0 revision=0");
  EXPECT_EQ(answer("free", R"({"blocks": [0, 1, 2, 3]})"), "ok");
  EXPECT_EQ(leave(), 0);
  EXPECT_TRUE(root_.empty());
}

TEST_F(WorkerDrillTest, AForkedChildThatExitsLeavesItsListenerAlone) {
  start();
  EXPECT_EQ(answer("exit_in_fork"), "exit 0");
  RawClient client;
  ASSERT_EQ(client.connect(socket_), 0);
  client.send(map_request());
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
  EXPECT_EQ(leave(), 0);
}

TEST_F(WorkerDrillTest, WithoutAListenerThereIsNoSocket) {
  start({"--no-listener", "--no-tensors"});
  EXPECT_EQ(socket_, "");
  EXPECT_TRUE(root_.empty());
  EXPECT_EQ(answer("create_tensors"), "ok");
  EXPECT_EQ(answer("start_listener"), "ok");
  EXPECT_FALSE(root_.empty());
  EXPECT_EQ(leave(), 0);
  EXPECT_TRUE(root_.empty());
}

}  // namespace
}  // namespace kv
