// For tests of whole runs: hand-made drills, and what came of them.
//
// Threads: one. Ownership: the fixture removes its folder.
#ifndef HARNESS_DRILL_SUPERVISOR_TEST_SUPPORT_H_
#define HARNESS_DRILL_SUPERVISOR_TEST_SUPPORT_H_

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/drill/supervisor.h"
#include "harness/scenario/step_reader.h"
#include "harness/steps/table.h"

namespace kv::drill {

class SupervisorTest : public ::testing::Test {
 public:
  SupervisorTest() {
    std::string folder = "/tmp/kvsXXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "mkdtemp: " << errno;
    folder_ = folder;
    drill_.scenario = "made up";
    drill_.position = {"made_up.toml", 1, 1};
    // What is known only when the deadline has come does not pass here.
    drill_.deadline_ns = 3'600'000'000'000;
    ProcessSpec worker;
    worker.name = "worker";
    worker.role = "worker";
    drill_.processes = {worker};
    options_.engine = KVDRILL_BUILD_DIR "/example_engine";
    options_.driver = "none";
    options_.runs_folder = folder_ + "/r";
    options_.repeat = "kvdrill run made_up.toml";
  }
  ~SupervisorTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  // Steps in the words of the language, a table each; step n stands in line n + 1. Unlike a loaded
  // drill it may ask for what can never be met.
  SupervisorTest& step(const std::string& tables) {
    const auto root = parse_toml("steps = [" + tables + "]");
    if (!root) throw std::invalid_argument(tables + ": " + root.error().message);
    Faults faults;
    const World world{engine_, language(), drill_.processes, true, "made_up.toml"};
    for (Step& made : finished(read_steps(*root->find("steps"), world, faults))) {
      made.position.line = static_cast<int>(drill_.steps.size()) + 2;
      drill_.steps.push_back(std::move(made));
    }
    for (const LoadError& fault : faults.sorted("")) ADD_FAILURE() << tables << fault.message;
    return *this;
  }
  SupervisorTest& start() { return step(R"({start = "worker"})"); }
  SupervisorTest& exit() { return step(R"({exit = "worker"})"); }
  SupervisorTest& send() {
    return step(R"({client = "c", connect = "worker"},
                   {client = "c", send_bytes = "68656c6c6f"})");
  }
  SupervisorTest& hold(const std::string& site) { return step("{hold = '" + site + "'}"); }
  SupervisorTest& wait(const std::string& site) { return step("{wait = '" + site + "'}"); }
  SupervisorTest& call(const std::string& command) {
    return step("{call = '" + command + "', as = 'stop'}");
  }
  SupervisorTest& shut_down() {
    return call("shutdown").step(R"({returns = "stop", value = "done"})").exit();
  }

  // The run in a process of its own, as the runner does it.
  DrillResult run() {
    const Supervisor supervisor = fork_drill(drill_, options_, -1);
    const DrillResult result = result_of(supervisor);
    int status = 0;
    EXPECT_EQ(::waitpid(supervisor.pid, &status, 0), supervisor.pid);
    return result;
  }
  static DrillResult result_of(const Supervisor& supervisor) {
    std::string line;
    char chunk[4096];
    for (;;) {
      pollfd entry{supervisor.result_fd, POLLIN, 0};
      ::poll(&entry, 1, -1);
      const ssize_t n = ::read(supervisor.result_fd, chunk, sizeof chunk);
      if (n == 0) break;
      if (n > 0) line.append(chunk, static_cast<std::size_t>(n));
    }
    ::close(supervisor.result_fd);
    auto result = result_from_json(line);
    EXPECT_TRUE(result) << result.error() << ": " << line;
    return result ? *result : DrillResult{};
  }

  static std::set<std::string> failed(const DrillResult& result) {
    std::set<std::string> names;
    for (const CheckResult& check : result.checks) {
      if (check.verdict == Verdict::kFail) names.insert(check.name);
    }
    return names;
  }
  static CheckResult check(const DrillResult& result, const std::string& name) {
    for (const CheckResult& one : result.checks) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << "no check '" << name << "'";
    return {};
  }
  static std::string reasons(const DrillResult& result) {
    std::string all;
    for (const CheckResult& one : result.checks) {
      if (one.verdict != Verdict::kPass) {
        all += std::string(verdict_name(one.verdict)) + " " + one.name + ": " + one.why + "\n";
      }
    }
    return all;
  }
  static std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::vector<std::string> run_folders() const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(options_.runs_folder, error)) {
      names.push_back(entry.path());
    }
    return names;
  }

  std::string folder_;
  // What the programs of the tests have.
  const Engine engine_ = {"",
                          {"worker"},
                          {"echo.received", "engine.exit", "engine.work", "listener.dispatch"},
                          {"echo.send"},
                          {"echo.stop.unlink"},
                          {},
                          {"abort",        "become_another", "crash_in_child",
                           "empty_folder", "file",           "flood",
                           "hide_in_out",  "hold_card",      "leave_in_default_places",
                           "listen",       "look",           "lose_ledger",
                           "open",         "reach_secret",   "remove_folder",
                           "shutdown",     "start_again",    "swap_event",
                           "swap_file",    "swap_threads",   "take_placed",
                           "wait_in_vain", "warn",           "work"}};
  Drill drill_;
  RunOptions options_;
};

// The engine is the test program itself (test_main.cc), which does wrong when it is told to.
class JudgingTest : public SupervisorTest {
 public:
  JudgingTest() {
    options_.engine = std::filesystem::read_symlink("/proc/self/exe");
    start();
  }
  JudgingTest& command(const std::string& name, const std::string& answer = "ok") {
    const std::string as = name + std::to_string(drill_.steps.size());
    step("{call = '" + name + "', in = 'worker', as = '" + as + "'}");
    step("{returns = '" + as + "', value = '" + answer + "'}");
    return *this;
  }
  JudgingTest& orders(const std::string& all) {
    std::string bytes;
    for (const char order : all) bytes += fmt::format("{:02x}", order);
    step("{client = 'c', send_bytes = '" + bytes + "'}");
    return *this;
  }
  // What it does wrong without a command.
  JudgingTest& cheating(const std::string& how) {
    drill_.processes[0].arguments = {"--cheat", how};
    return *this;
  }
  JudgingTest& kill() {
    step(R"({signal = "KILL", to = "worker"}, {ended = "worker", signal = "KILL"})");
    return *this;
  }
};

}  // namespace kv::drill

#endif  // HARNESS_DRILL_SUPERVISOR_TEST_SUPPORT_H_
