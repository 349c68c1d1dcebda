// The engine contract, played with nothing but a Board: what CONTRACT.md promises, on the engine of
// sixty lines that it shows.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "harness/board/board.h"
#include "harness/board/sanitizer.h"
#include "harness/board/testing.h"

namespace kv::drill {
namespace {

const std::string kEngine = std::string(KVDRILL_BUILD_DIR) + "/example_engine";

class ContractTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(root_), nullptr);
    pid_ =
        drill_.start(kEngine, "one", {"--name", "one", "--role", "worker", "--socket-root", root_});
    socket_ = drill_.wait_for(EventKind::kAnnounced, "socket").text;
    drill_.wait_for(EventKind::kReady);
  }
  void TearDown() override {
    ::unlink(socket_.c_str());
    ::rmdir(root_);
  }

  // Connects and sends; the descriptor.
  int send(std::string_view bytes) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    std::strncpy(place.sun_path, socket_.c_str(), sizeof place.sun_path - 1);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
    EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return fd;
  }
  // What comes back until the end of the connection.
  static std::string rest(int fd) {
    std::string text;
    char bytes[256];
    for (ssize_t n; (n = ::read(fd, bytes, sizeof bytes)) > 0;) {
      text.append(bytes, static_cast<std::size_t>(n));
    }
    ::close(fd);
    return text;
  }
  std::string shut_down() {
    EXPECT_TRUE(drill_.board.call("one", "shutdown", "{}", "stop", 7));
    return std::string(drill_.wait_for(EventKind::kReturn, "shutdown").text);
  }

  Drill drill_;
  char root_[32] = "/tmp/kvd-contract-XXXXXX";
  pid_t pid_ = 0;
  std::string socket_;
};

TEST_F(ContractTest, ServesAndEndsAsTold) {
  EXPECT_EQ(rest(send("hello")), "hello");
  EXPECT_EQ(shut_down(), "done");
  EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
  EXPECT_TRUE(drill_.board.tell_exit("one", "return", 3));
  EXPECT_EQ(drill_.exit_code(pid_), 3);
}

TEST_F(ContractTest, AHeldThreadStandsUntilItIsReleased) {
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "echo.received"});
  const int fd = send("abc");
  const Event acted = drill_.wait_for(EventKind::kActed, "echo.received");
  EXPECT_EQ(acted.text, "hold");
  EXPECT_EQ(acted.key, 3);
  EXPECT_EQ(drill_.board.state(hold).holding, 1u);
  EXPECT_TRUE(drill_.all(EventKind::kPoint, "echo.send").empty());
  drill_.board.release(hold);
  EXPECT_EQ(rest(fd), "abc");
  const Event released = drill_.wait_for(EventKind::kReleased);
  EXPECT_LT(released.sequence, drill_.wait_for(EventKind::kPoint, "echo.send").sequence);
}

TEST_F(ContractTest, AFaultFailsAsOftenAsItWasTold) {
  drill_.board.give({.action = Action::kFail, .site = "echo.send", .code = 5});
  EXPECT_EQ(rest(send("lost")), "");
  EXPECT_EQ(drill_.wait_for(EventKind::kDone, "echo.send").value, 5);
  EXPECT_EQ(rest(send("kept")), "kept");
}

TEST_F(ContractTest, OutlivesAPeerThatGoesAwayWithoutItsAnswer) {
  const auto hold = drill_.board.give({.action = Action::kHold, .site = "echo.received"});
  const int fd = send("abc");
  drill_.wait_for(EventKind::kActed, "echo.received");
  ::close(fd);
  drill_.board.release(hold);
  EXPECT_EQ(drill_.wait_for(EventKind::kDone, "echo.send").value, -1);
  EXPECT_EQ(rest(send("kept")), "kept");
}

TEST_F(ContractTest, ASkippedStepIsLeftOut) {
  drill_.board.give({.action = Action::kSkip, .site = "echo.stop.unlink"});
  EXPECT_EQ(shut_down(), "done");
  EXPECT_EQ(::access(socket_.c_str(), F_OK), 0);
}

TEST_F(ContractTest, TheBoardIsReadableAfterASigkill) {
  drill_.board.give({.action = Action::kHold, .site = "echo.received"});
  const int fd = send("abc");
  const Event acted = drill_.wait_for(EventKind::kActed);
  ::kill(pid_, SIGKILL);
  EXPECT_EQ(drill_.exit_code(pid_), -SIGKILL);
  EXPECT_EQ(rest(fd), "");
  EXPECT_EQ(drill_.board.processes().at(1).threads.at(acted.thread).label, "echo");
  EXPECT_EQ(drill_.board.state(1).acted, 1u);
  EXPECT_EQ(drill_.board.state(1).holding, 0u);
  EXPECT_FALSE(drill_.board.call("one", "shutdown", "{}", "stop", 7));
}

// A drill that asks whether anybody can still move looks at the kernel's list of threads: those of
// a sanitizer's runtime must be known, so that they can be left out.
TEST_F(ContractTest, EveryThreadOfTheProcessIsKnown) {
  drill_.wait_for(
      [](const Event& event) { return event.kind == EventKind::kThread && event.text == "echo"; });
  const ProcessInfo process = drill_.board.processes().at(1);
  std::multiset<std::string> labels;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task")) {
    const pid_t tid = std::stoi(task.path().filename());
    for (const ThreadInfo& thread : process.threads) {
      if (thread.tid == tid) labels.insert(thread.label);
    }
  }
  std::multiset<std::string> expected = {"main", "kvdrill.commands", "echo"};
  if (kRaceDetector) expected.insert("runtime");
  EXPECT_EQ(labels, expected);
}

TEST(DescribeTest, NamesEverythingADrillMayUse) {
  FILE* pipe = ::popen((kEngine + " --describe").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char bytes[512];
  for (std::size_t n; (n = std::fread(bytes, 1, sizeof bytes, pipe)) > 0;) text.append(bytes, n);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(R"({
    "contract": 1, "program": "example_engine", "roles": ["worker"],
    "points": ["echo.received"], "faults": ["echo.send"], "steps": ["echo.stop.unlink"],
    "notes": [],
    "commands": [{"name": "shutdown",
                  "about": "Stops serving and answers done. No arguments."}]})"));
}

}  // namespace
}  // namespace kv::drill
