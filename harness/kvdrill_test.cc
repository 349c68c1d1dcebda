// The program from the outside: exit codes, messages, and what is left when it is stopped or
// killed.

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace kv::drill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kPasses = R"(
name = "passes"
about = "Starts, stops, ends."
[processes]
worker = {role = "worker"}
[drill]
steps = [
  {start = "worker"},
  {call = "shutdown", in = "worker", as = "stop"},
  {id = "stopped", returns = "stop", value = "done"},
  {exit = "worker"},
]
)";

// Serves requests for as long as anybody lets it; says by a file that it is in the middle of it.
constexpr const char* kLasts = R"(
name = "lasts"
about = "A client that asks again and again."
[processes]
worker = {role = "worker"}
[drill]
steps = [
  {start = "worker"},
  {client = "c", connect = "worker"},
  {place = "{run}/in_the_middle", contents = ""},
  {repeat = 1000000, steps = [
    {client = "c", request = {cmd = "kv_tensors_created", group_id = 0}, reply = {status = "success"}},
  ]},
  {exit = "worker"},
]
events = 1000000
)";

struct Outcome {
  int status = 0;
  std::string out, err;
};

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Kvdrill : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/kdt.XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    fs::create_directory(root_ + "/runs");
    // Whatever a killed runner leaves becomes ours to reap: so "nothing is left" can be waited for.
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string file(const std::string& name, std::string_view text) {
    const std::string path = root_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  pid_t start(std::vector<std::string> words) {
    words.insert(words.begin(), std::string(KVDRILL_BUILD_DIR) + "/kvdrill");
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const int out = ::open((root_ + "/out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    const int err = ::open((root_ + "/err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    ::dup2(out, 1);
    ::dup2(err, 2);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  Outcome end(pid_t pid) {
    Outcome outcome;
    EXPECT_EQ(::waitpid(pid, &outcome.status, 0), pid);
    outcome.out = slurp(root_ + "/out");
    outcome.err = slurp(root_ + "/err");
    return outcome;
  }

  Outcome run(std::vector<std::string> words) {
    if (words[0] == "run" || words[0] == "prove") {
      words.push_back("--runs");
      words.push_back(root_ + "/runs");
    }
    return end(start(words));
  }

  // Starts a drill that lasts and returns when it is in the middle.
  pid_t start_lasting() {
    const std::string path = file("lasts.toml", kLasts);
    const int watch = ::inotify_init1(IN_CLOEXEC);
    EXPECT_GE(::inotify_add_watch(watch, (root_ + "/runs").c_str(), IN_CREATE), 0);
    const pid_t pid = start({"run", path, "--runs", root_ + "/runs"});
    const std::string folder = root_ + "/runs/" + created(watch);
    EXPECT_GE(::inotify_add_watch(watch, folder.c_str(), IN_CREATE), 0);
    if (!fs::exists(folder + "/in_the_middle")) {
      while (created(watch) != "in_the_middle") {
      }
    }
    ::close(watch);
    return pid;
  }

  std::vector<std::string> runs_left() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ + "/runs")) names.push_back(entry.path());
    return names;
  }

  // Reaps what was left to us until there is nobody; so every process of the run has ended.
  void everybody_ends() {
    int status = 0;
    while (::wait(&status) > 0) {
    }
    EXPECT_EQ(errno, ECHILD);
  }

  static int code(const Outcome& outcome) {
    return WIFEXITED(outcome.status) ? WEXITSTATUS(outcome.status) : -WTERMSIG(outcome.status);
  }

  std::string root_;

 private:
  static std::string created(int watch) {
    alignas(inotify_event) char buffer[4096];
    if (::read(watch, buffer, sizeof buffer) <= 0) return {};
    return reinterpret_cast<const inotify_event*>(buffer)->name;
  }
};

TEST_F(Kvdrill, APassingRunIsZeroAndLeavesNoFolder) {
  const auto outcome = run({"run", file("a.toml", kPasses)});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 passed, 0 failed, 0 void, 0 skipped, 0 errors"));
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, JsonIsAllThatStandardOutputHolds) {
  const auto outcome = run({"run", file("a.toml", kPasses), "--format", "json"});
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["passed"], 1);
  EXPECT_EQ(json["scenarios"][0]["processes"][0]["exit"], 0);
}

TEST_F(Kvdrill, AFailedCheckIsOneAndSaysWhereAndHowToRepeat) {
  std::string text = kPasses;
  text.replace(text.find("value = \"done\""), 14, "value = \"dune\"");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("stopped"));
  EXPECT_THAT(outcome.out, HasSubstr("a.toml:10:"));
  EXPECT_THAT(outcome.out, HasSubstr("repeat: "));
  ASSERT_EQ(runs_left().size(), 1u);
  EXPECT_TRUE(fs::exists(runs_left()[0] + "/trace.txt"));
  EXPECT_TRUE(fs::exists(runs_left()[0] + "/plan.txt"));
  EXPECT_TRUE(fs::exists(runs_left()[0] + "/verdict.json"));
}

TEST_F(Kvdrill, AFaultThatNeverFiresIsVoid) {
  std::string text = kPasses;
  text.replace(text.find("{start = \"worker\"},"), 19,
               "{start = \"worker\"}, {fail = \"vmm.map\", code = 2, in = \"worker\"},");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 3) << outcome.out << outcome.err;
}

TEST_F(Kvdrill, AnInvalidFileIsTwoAndStartsNothing) {
  std::string text = kPasses;
  text.replace(text.find("returns"), 7, "retruns");
  const auto outcome = run({"run", file("a.toml", text)});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("a.toml:10:"));
  EXPECT_THAT(outcome.err, HasSubstr("returns"));
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, AMissingFileOrEngineIsTwo) {
  EXPECT_EQ(code(run({"run", root_ + "/absent.toml"})), 2);
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", root_ + "/absent"});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_THAT(outcome.err, HasSubstr(root_ + "/absent"));
}

TEST_F(Kvdrill, AnEngineThatDoesNotDescribeItselfIsNamed) {
  const auto outcome = run({"run", file("a.toml", kPasses), "--engine", "/bin/true"});
  EXPECT_EQ(code(outcome), 4);
  EXPECT_THAT(outcome.err, HasSubstr("/bin/true"));
}

TEST_F(Kvdrill, JunitAndPageAreWritten) {
  const auto outcome = run(
      {"run", file("a.toml", kPasses), "--junit", root_ + "/j.xml", "--report", root_ + "/report"});
  EXPECT_EQ(code(outcome), 0) << outcome.err;
  EXPECT_THAT(slurp(root_ + "/j.xml"), HasSubstr("<testcase"));
  EXPECT_THAT(slurp(root_ + "/report/index.html"), HasSubstr("passes"));
}

TEST_F(Kvdrill, CtrlCLeavesNothing) {
  const pid_t pid = start_lasting();
  ASSERT_EQ(::kill(pid, SIGINT), 0);
  const auto outcome = end(pid);
  EXPECT_EQ(code(outcome), 130) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("interrupted"));
  everybody_ends();
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, AKilledRunnerLeavesNothing) {
  const pid_t pid = start_lasting();
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(code(end(pid)), -SIGKILL);
  everybody_ends();
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(Kvdrill, TheRepeatCommandRepeats) {
  std::string text = kPasses;
  text.replace(text.find("value = \"done\""), 14, "value = \"dune\"");
  const auto outcome = run({"run", file("it's a.toml", text)});
  const std::size_t at = outcome.out.find("repeat: ");
  ASSERT_NE(at, std::string::npos) << outcome.out;
  const std::string command = outcome.out.substr(at + 8, outcome.out.find('\n', at) - at - 8);
  const int status =
      std::system((command + " --runs " + root_ + "/runs > " + root_ + "/again").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1) << command;
  EXPECT_THAT(slurp(root_ + "/again"), HasSubstr("1 failed"));
}

TEST_F(Kvdrill, RunsSideBySideKeepTheOrderOfTheFiles) {
  std::string other = kPasses;
  other.replace(other.find("\"passes\""), 8, "\"another\"");
  file("a.toml", other);
  file("b.toml", kPasses);
  const auto outcome =
      run({"run", root_ + "/a.toml", root_ + "/b.toml", "-j", "2", "--repeat", "5"});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_LT(outcome.out.find("another"), outcome.out.find("passes  "));
  EXPECT_THAT(outcome.out, HasSubstr("passed 5 of 5"));
}

}  // namespace
}  // namespace kv::drill
