// One process's runtime: up, down in the right order, and not down when it cannot be.
#include "kvcore/runtime/runtime.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <stdexcept>
#include <thread>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/listener/listener_testing.h"

namespace kv {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Moments;
using testing::RawClient;
using testing::TempDir;
using testing::text_of;

constexpr Nanos kLimit = seconds(5);
constexpr std::int64_t kPage = ModelVmm::kPage;

class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "points are compiled out";
    config_.ipc_name = "rt";
    config_.socket_root = root_.path();
    config_.drain_limit = kLimit;
    init();
  }
  void TearDown() override {
    if (runtime_ == nullptr) return;
    moments_.open_all();
    EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
    runtime_ = nullptr;
    EXPECT_TRUE(root_.empty());
  }

  void init() {
    auto model = std::make_unique<ModelVmm>();
    model_ = model.get();
    // The runtime lives as long as the process; what it borrows must, too.
    auto made = Runtime::init(
        config_, std::move(model), [this] { return close_driver(); }, *clock_,
        [this](Severity, std::string_view line) {
          const std::lock_guard lock(log_mutex_);
          log_.emplace_back(line);
        });
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    runtime_ = *made;
    KvShape shape;
    shape.tensor_bytes = 16 * kPage;
    shape.page_bytes = kPage;
    ASSERT_TRUE(runtime_->allocator().create_tensors(0, shape).ok());
    ASSERT_TRUE(runtime_->start_listener().ok());
  }
  Status close_driver() {
    ++closed_;
    EXPECT_TRUE(model_->mappings().empty());
    return close_status_;
  }
  RawClient connected(const std::string& path) {
    RawClient client;
    EXPECT_EQ(client.connect(path), 0);
    return client;
  }
  RawClient parked() {
    moments_.hold("listener.handler.begin");
    RawClient client = connected(runtime_->socket_path());
    client.send(map_request());
    moments_.await("listener.handler.begin");
    return client;
  }
  static Message map_request() {
    return {{"cmd", "map_to_kv_tensors"}, {"offsets", Value::List{std::int64_t{0}}}};
  }
  std::future<StopResult> shutdown_elsewhere() {
    return std::async(std::launch::async, [this] { return runtime_->shutdown(); });
  }
  std::string other_socket(const char* name) const {
    return std::filesystem::path(runtime_->socket_path()).parent_path() / name;
  }
  std::string log() {
    const std::lock_guard lock(log_mutex_);
    std::string all;
    for (const auto& line : log_) all += line + "\n";
    return all;
  }

  TempDir root_;
  RuntimeConfig config_;
  Moments moments_;
  ManualClock* clock_ = new ManualClock;
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  ModelVmm* model_ = nullptr;
  Status close_status_;
  int closed_ = 0;
  Runtime* runtime_ = nullptr;
};

TEST_F(RuntimeTest, ServesAndGivesEverythingBack) {
  RawClient client = connected(runtime_->socket_path());
  client.send(map_request());
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
  EXPECT_FALSE(model_->mappings().empty());
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_FALSE(runtime_->initialised());
  EXPECT_TRUE(model_->mappings().empty());
  EXPECT_EQ(model_->handles(), 0u);
  EXPECT_EQ(closed_, 1);
  EXPECT_TRUE(root_.empty());
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(runtime_->start_listener().code(), Code::kFailedPrecondition);
  EXPECT_THAT(moments_.values("runtime.shutdown.return"), ElementsAre(0, 0));
}

TEST_F(RuntimeTest, ASecondOneIsRefusedUntilTheFirstIsDown) {
  auto second = Runtime::init(
      config_, std::make_unique<ModelVmm>(), [] { return Status(); }, *clock_, nullptr);
  EXPECT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  init();
  EXPECT_TRUE(runtime_->initialised());
}

TEST_F(RuntimeTest, ADriverThatIsNotThereLeavesNothing) {
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  RuntimeConfig config = config_;
  config.driver_path = "/nonexistent/libcuda.so.1";
  for (int i = 0; i < 2; ++i) {
    auto failed = Runtime::init(config, *clock_, nullptr);
    EXPECT_EQ(failed.status().code(), Code::kNotFound) << failed.status().to_string();
  }
}

// ---- not drained

TEST_F(RuntimeTest, NotDrainedTearsNothingDownAndCanBeCalledAgain) {
  RawClient client = parked();
  auto first = shutdown_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  clock_->set(Time(kLimit));
  EXPECT_EQ(first.get(), StopResult::kNotDrained);
  EXPECT_TRUE(runtime_->initialised());
  EXPECT_TRUE(runtime_->allocator().tensors_created(0));
  EXPECT_FALSE(runtime_->socket_path().empty());
  EXPECT_EQ(moments_.count("runtime.teardown"), 0u);
  moments_.open("listener.handler.begin");
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_LT(moments_.first("listener.handler.end"), moments_.first("runtime.teardown"));
}

TEST_F(RuntimeTest, WithoutDeferringItTearsDownUnderTheHandler) {
  moments_.skip("runtime.shutdown.defer");
  RawClient client = parked();
  auto first = shutdown_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  clock_->set(Time(kLimit));
  EXPECT_EQ(first.get(), StopResult::kDone);
  EXPECT_EQ(moments_.count("listener.handler.end"), 0u);
  // The handler meets a runtime that is gone, and gets an error, not a crash.
  moments_.open("listener.handler.begin");
  EXPECT_EQ(runtime_->stop_listener(0, 0), StopResult::kDone);
}

TEST_F(RuntimeTest, AllListenersDrainUnderOneLimit) {
  ASSERT_TRUE(runtime_->start_listener(1, 0).ok());
  ASSERT_TRUE(runtime_->start_listener(0, 1).ok());
  moments_.hold("listener.handler.begin");
  const std::string main = runtime_->socket_path();
  std::vector<RawClient> clients;
  for (const auto& path : {main, other_socket("w1.sock"), other_socket("pp1/w0.sock")}) {
    clients.push_back(connected(path));
    clients.back().send(map_request());
  }
  moments_.await("listener.handler.begin", 3);
  auto shutdown = shutdown_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  EXPECT_EQ(moments_.count("listener.cut"), 3u);
  clock_->set(Time(kLimit));
  EXPECT_EQ(shutdown.get(), StopResult::kNotDrained);
  EXPECT_EQ(clock_->now(), Time(kLimit));
}

TEST_F(RuntimeTest, WithoutTheOneLimitEachGetsItsOwn) {
  moments_.skip("runtime.shutdown.one_limit");
  ASSERT_TRUE(runtime_->start_listener(1, 0).ok());
  moments_.hold("listener.handler.begin");
  RawClient first = connected(runtime_->socket_path());
  RawClient second = connected(other_socket("w1.sock"));
  first.send(map_request());
  second.send(map_request());
  moments_.await("listener.handler.begin", 2);
  auto shutdown = shutdown_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  clock_->set(Time(kLimit));
  moments_.await("clock.wait", 2, "listener.stop.drain");
  EXPECT_EQ(moments_.count("listener.stop.return"), 1u);
  clock_->set(Time(2 * kLimit));
  EXPECT_EQ(shutdown.get(), StopResult::kNotDrained);
}

// ---- failed

TEST_F(RuntimeTest, AnErrorOfTheCleanUpKeepsTheEntryAndEverythingElse) {
  moments_.fail("listener.unlink", EACCES);
  Status why;
  EXPECT_EQ(runtime_->shutdown(&why), StopResult::kFailed);
  EXPECT_EQ(why.native(), EACCES);
  EXPECT_TRUE(runtime_->initialised());
  EXPECT_FALSE(runtime_->socket_path().empty());
  moments_.fail("listener.unlink", 0);
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
}

TEST_F(RuntimeTest, WithoutKeepingTheEntryTheSocketStays) {
  moments_.skip("runtime.shutdown.keep_on_error");
  moments_.fail("listener.unlink", EACCES);
  EXPECT_EQ(runtime_->shutdown(), StopResult::kFailed);
  const std::string socket = root_.path();
  moments_.fail("listener.unlink", 0);
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_FALSE(root_.empty());
  runtime_ = nullptr;
}

TEST_F(RuntimeTest, AnErrorOfTheTeardownIsFailedAndCanBeCalledAgain) {
  RawClient client = connected(runtime_->socket_path());
  client.send(map_request());
  ASSERT_TRUE(client.reply().has_value());
  model_->fault = [](const std::string& call, int) { return call == "unmap" ? 999 : 0; };
  EXPECT_EQ(runtime_->shutdown(), StopResult::kFailed);
  EXPECT_TRUE(runtime_->initialised());
  EXPECT_EQ(closed_, 0);
  model_->fault = nullptr;
  close_status_ = Status::error(Code::kDriver, "vmm.close", {}, 999);
  EXPECT_EQ(runtime_->shutdown(), StopResult::kFailed);
  close_status_ = Status();
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
}

// ---- the engine's own shutdown

TEST_F(RuntimeTest, TheEnginesShutdownRunsFirstAndOnce) {
  int runs = 0;
  runtime_->set_engine_shutdown([&] {
    ++runs;
    EXPECT_EQ(moments_.count("listener.cut"), 0u);
    EXPECT_TRUE(runtime_->initialised());
  });
  moments_.fail("listener.unlink", EACCES);
  EXPECT_EQ(runtime_->shutdown(), StopResult::kFailed);
  moments_.fail("listener.unlink", 0);
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_EQ(runs, 1);
}

TEST_F(RuntimeTest, AnEnginesShutdownThatThrowsDoesNotKeepTheListenerUp) {
  runtime_->set_engine_shutdown([] { throw std::runtime_error("half down"); });
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_THAT(log(), HasSubstr("half down"));
}

TEST_F(RuntimeTest, WithoutGoingOnAThrowLeavesTheListenerUp) {
  moments_.skip("runtime.shutdown.engine_throws");
  runtime_->set_engine_shutdown([] { throw 7; });
  Status why;
  EXPECT_EQ(runtime_->shutdown(&why), StopResult::kFailed);
  EXPECT_FALSE(why.ok());
  RawClient client = connected(runtime_->socket_path());
  client.send(map_request());
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
}

TEST_F(RuntimeTest, AnEnginesShutdownMayCallShutdownItself) {
  StopResult inner = StopResult::kFailed;
  runtime_->set_engine_shutdown([&] { inner = runtime_->shutdown(); });
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_EQ(inner, StopResult::kDone);
  EXPECT_EQ(closed_, 1);
}

TEST_F(RuntimeTest, ASecondShutdownWaitsForTheEnginesOwn) {
  std::promise<void> inside, go;
  runtime_->set_engine_shutdown([&] {
    inside.set_value();
    go.get_future().wait();
  });
  auto first = shutdown_elsewhere();
  inside.get_future().wait();
  auto late = shutdown_elsewhere();
  moments_.await("clock.wait", 1, "runtime.shutdown.turn");
  clock_->set(Time(kLimit));
  EXPECT_EQ(late.get(), StopResult::kNotDrained);
  EXPECT_EQ(moments_.count("listener.cut"), 0u);
  go.set_value();
  EXPECT_EQ(first.get(), StopResult::kDone);
}

// ---- several at once, own thread

TEST_F(RuntimeTest, SeveralShutdownsAtOnceAreAllTrue) {
  RawClient client = parked();
  std::vector<std::future<StopResult>> all;
  for (int i = 0; i < 3; ++i) all.push_back(shutdown_elsewhere());
  moments_.await("clock.wait", 1, "listener.stop.drain");
  moments_.await("clock.wait", 2, "listener.stop.second");
  moments_.open("listener.handler.begin");
  for (auto& one : all) EXPECT_EQ(one.get(), StopResult::kDone);
  EXPECT_EQ(closed_, 1);
  EXPECT_LT(moments_.last("listener.handler.end"), moments_.first("runtime.shutdown.return"));
}

TEST_F(RuntimeTest, FromAHandlerItIsNotDrainedAtOnceAndNothingHasChanged) {
  ASSERT_TRUE(runtime_->start_listener(1, 0).ok());
  // Shared: the fixture's own shutdown runs it after this test's variables are gone.
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  runtime_->set_engine_shutdown([ran] { *ran = true; });
  // The model calls back in the middle of a driver call, on the listener's thread.
  model_->fault = [this](const std::string& call, int) {
    if (call == "create") {
      EXPECT_EQ(runtime_->shutdown(), StopResult::kNotDrained);
    }
    return 0;
  };
  RawClient client = connected(runtime_->socket_path());
  client.send(map_request());
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
  model_->fault = nullptr;
  EXPECT_FALSE(*ran);
  EXPECT_EQ(moments_.count("listener.cut"), 0u);
  EXPECT_GT(moments_.count("listener.stop.return"), 0u);
}

// ---- starting where one is registered

TEST_F(RuntimeTest, StartingAgainReplacesTheOldOne) {
  const std::string path = runtime_->socket_path();
  RawClient old = connected(path);
  ASSERT_TRUE(runtime_->start_listener().ok());
  EXPECT_TRUE(old.ended());
  RawClient client = connected(path);
  client.send(map_request());
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
}

TEST_F(RuntimeTest, AnOldOneThatCannotFinishStaysAndTheStartFails) {
  RawClient client = parked();
  auto start = std::async(std::launch::async, [this] { return runtime_->start_listener(); });
  moments_.await("clock.wait", 1, "listener.stop.drain");
  EXPECT_EQ(runtime_->start_listener().code(), Code::kFailedPrecondition);  // one at a time
  clock_->set(Time(kLimit));
  const Status status = start.get();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.to_string(), HasSubstr("not_drained"));
  EXPECT_FALSE(runtime_->socket_path().empty());
  moments_.open("listener.handler.begin");
  EXPECT_TRUE(runtime_->start_listener().ok());
}

TEST_F(RuntimeTest, WithoutTheGuardTheOldOneIsLostUnderItsHandler) {
  moments_.skip("runtime.listener.restart_guard");
  RawClient client = parked();
  auto start = std::async(std::launch::async, [this] { return runtime_->start_listener(); });
  moments_.await("clock.wait", 1, "listener.stop.drain");
  clock_->set(Time(kLimit));
  EXPECT_TRUE(start.get().ok());
  EXPECT_EQ(runtime_->shutdown(), StopResult::kDone);
  EXPECT_EQ(moments_.count("listener.handler.end"), 0u);
  moments_.open("listener.handler.begin");
  moments_.await("listener.thread.end", 2);
}

TEST_F(RuntimeTest, AStartDuringShutdownIsRefused) {
  RawClient client = parked();
  auto shutdown = shutdown_elsewhere();
  moments_.await("clock.wait", 1, "listener.stop.drain");
  EXPECT_EQ(runtime_->start_listener(1, 0).code(), Code::kFailedPrecondition);
  moments_.open("listener.handler.begin");
  EXPECT_EQ(shutdown.get(), StopResult::kDone);
}

TEST_F(RuntimeTest, OneListenerCanBeStoppedAlone) {
  ASSERT_TRUE(runtime_->start_listener(1, 0).ok());
  EXPECT_EQ(runtime_->stop_listener(1, 0), StopResult::kDone);
  EXPECT_EQ(runtime_->stop_listener(1, 0), StopResult::kDone);
  EXPECT_EQ(runtime_->stop_listener(9, 9), StopResult::kDone);
  RawClient client = connected(runtime_->socket_path());
  client.send(map_request());
  EXPECT_EQ(text_of(client.reply(), "status"), "success");
}

}  // namespace
}  // namespace kv
