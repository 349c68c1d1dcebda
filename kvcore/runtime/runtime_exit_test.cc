// What happens to a runtime when its process exits without a shutdown. Each case is a process of
// its own: forked while this one has a single thread, judged by its exit code and what it left.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/listener/listener_testing.h"
#include "kvcore/runtime/runtime.h"

namespace kv {
namespace {

using ::testing::HasSubstr;
using testing::Moments;
using ::testing::Not;
using testing::RawClient;
using testing::TempDir;
using testing::text_of;

constexpr std::int64_t kPage = ModelVmm::kPage;

// What the forked process has; never destroyed there, as in a real one.
struct Engine {
  Moments& moments = *new Moments;
  ManualClock& clock = *new ManualClock;
  Runtime* runtime = nullptr;
};

class RuntimeExitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "points are compiled out";
  }

  // Runs `body` in a new process with a runtime and a listener; returns its wait status.
  int in_process(const std::function<void(Engine&)>& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      Engine* volatile engine = bring_up();  // kept in sight of the leak checker
      body(*engine);
      ::_exit(99);  // the body was to end the process
    }
    int state = 0;
    while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    return state;
  }
  Engine* bring_up() {
    auto* engine = new Engine;
    RuntimeConfig config;
    config.ipc_name = "exit";
    config.socket_root = root_.path();
    auto made = Runtime::init(
        config, std::make_unique<ModelVmm>(), [] { return Status(); }, engine->clock,
        [file = log_path()](Severity, std::string_view line) {
          std::ofstream(file, std::ios::app) << line << "\n";
        });
    if (!made.ok()) ::_exit(98);
    engine->runtime = *made;
    KvShape shape;
    shape.tensor_bytes = 16 * kPage;
    shape.page_bytes = kPage;
    if (!engine->runtime->allocator().create_tensors(0, shape).ok()) ::_exit(97);
    if (!engine->runtime->start_listener().ok()) ::_exit(96);
    return engine;
  }
  static Message map_request() {
    return {{"cmd", "map_to_kv_tensors"}, {"offsets", Value::List{std::int64_t{0}}}};
  }
  std::string log_path() const { return logs_.path() + "/log"; }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(log_path()).rdbuf();
    return text.str();
  }

  TempDir root_, logs_;
};

TEST_F(RuntimeExitTest, TheExitHookStopsTheListenerAndGivesEverythingBack) {
  const int state = in_process([](Engine& engine) {
    engine.runtime->set_engine_shutdown(
        [] { ::_exit(95); });  // its objects may be gone: not called
    std::exit(3);
  });
  EXPECT_EQ(state, W_EXITCODE(3, 0));
  EXPECT_TRUE(root_.empty());
  EXPECT_EQ(log(), "");
}

TEST_F(RuntimeExitTest, WithoutItTheSocketStays) {
  const int state = in_process([](Engine& engine) {
    engine.moments.skip("runtime.exit_hook");
    std::exit(0);
  });
  EXPECT_EQ(state, 0);
  EXPECT_FALSE(root_.empty());
}

TEST_F(RuntimeExitTest, AfterAShutdownItDoesNothing) {
  const int state = in_process([](Engine& engine) {
    if (engine.runtime->shutdown() != StopResult::kDone) ::_exit(95);
    std::exit(0);
  });
  EXPECT_EQ(state, 0);
  EXPECT_TRUE(root_.empty());
}

TEST_F(RuntimeExitTest, WhatCannotBeDrainedIsLoggedAndNotTornDown) {
  const int state = in_process([](Engine& engine) {
    engine.moments.hold("listener.handler.begin");
    RawClient client;  // exit() leaves it connected
    if (client.connect(engine.runtime->socket_path()) != 0) ::_exit(95);
    client.send(map_request());
    engine.moments.await("listener.handler.begin");
    std::thread([&engine] {
      engine.moments.await("clock.wait", 1, "listener.stop.drain");
      engine.clock.set(engine.clock.now() + std::chrono::seconds(5));
    }).detach();
    std::exit(0);  // with the handler inside
  });
  EXPECT_EQ(state, 0);
  EXPECT_FALSE(root_.empty());
  EXPECT_THAT(log(), HasSubstr("not drained at exit"));
}

TEST_F(RuntimeExitTest, AnExitInsideAHandlerIsNotWaitedFor) {
  const int state = in_process([](Engine& engine) {
    engine.moments.at("listener.handler.begin", [] { std::exit(4); });
    RawClient client;
    if (client.connect(engine.runtime->socket_path()) != 0) ::_exit(95);
    client.send(map_request());
    client.reply();
  });
  EXPECT_EQ(state, W_EXITCODE(4, 0));
  EXPECT_THAT(log(), HasSubstr("not drained at exit"));
}

TEST_F(RuntimeExitTest, AForkedChildThatExitsLeavesItsParentsListenerAlone) {
  const int state = in_process([](Engine& engine) {
    const pid_t child = ::fork();
    if (child == 0) std::exit(0);
    int ended = 0;
    if (::waitpid(child, &ended, 0) != child || ended != 0) ::_exit(95);
    RawClient client;
    if (client.connect(engine.runtime->socket_path()) != 0) ::_exit(94);
    client.send(map_request());
    ::_exit(text_of(client.reply(), "status") == "success" ? 0 : 93);
  });
  EXPECT_EQ(state, 0);
}

// ---- the configuration

TEST(RuntimeConfigTest, NamesTheFieldItsValueAndWhatWasExpected) {
  RuntimeConfig good;
  good.ipc_name = "engine_1-a";
  EXPECT_TRUE(good.validate().ok()) << good.validate().to_string();
  const auto said = [&good](const std::function<void(RuntimeConfig&)>& spoil) {
    RuntimeConfig config = good;
    spoil(config);
    const Status status = config.validate();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.to_string();
  };
  EXPECT_THAT(said([](auto& c) { c.rank = -1; }), HasSubstr("rank"));
  EXPECT_THAT(said([](auto& c) { c.rank = -1; }), HasSubstr("is -1, expected 0"));
  EXPECT_THAT(said([](auto& c) { c.stage = -2; }), HasSubstr("stage"));
  EXPECT_THAT(said([](auto& c) { c.device = -1; }), HasSubstr("device"));
  EXPECT_THAT(said([](auto& c) { c.driver_path = ""; }), HasSubstr("driver_path"));
  EXPECT_THAT(said([](auto& c) { c.ipc_name = ""; }), HasSubstr("ipc_name"));
  EXPECT_THAT(said([](auto& c) { c.ipc_name = "a/b"; }), HasSubstr("\"a/b\""));
  EXPECT_THAT(said([](auto& c) { c.ipc_name = std::string(65, 'x'); }), HasSubstr("64"));
  EXPECT_THAT(said([](auto& c) { c.socket_root = "tmp"; }), HasSubstr("absolute"));
  EXPECT_THAT(said([](auto& c) { c.drain_limit = Nanos(0); }), HasSubstr("drain_limit"));
  EXPECT_THAT(said([](auto& c) { c.max_body = 0; }), HasSubstr("max_body"));
  EXPECT_THAT(said([](auto& c) { c.max_body = 1u << 31; }), HasSubstr("max_body"));
  EXPECT_THAT(said([](auto& c) { c.socket_root = "/" + std::string(90, 'x'); }),
              HasSubstr("socket"));
}

}  // namespace
}  // namespace kv
