// For tests of the program from the outside: starts it with an environment and a cache of its own.
#ifndef HARNESS_CLI_KVDRILL_TEST_SUPPORT_H_
#define HARNESS_CLI_KVDRILL_TEST_SUPPORT_H_

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kv::drill {

inline constexpr const char* kPasses = R"(
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
inline constexpr const char* kLasts = R"(
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

struct ProgramEnd {
  int status = 0;
  std::string out, err;
};

inline std::string slurp(const std::string& path) {
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
    std::filesystem::create_directory(root_ + "/runs");
    // Whatever a killed runner leaves becomes ours to reap: so "nothing is left" can be waited for.
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string file(const std::string& name, std::string_view text) {
    const std::string path = root_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  pid_t start(std::vector<std::string> words) {
    words.insert(words.begin(), std::string(KVDRILL_BUILD_DIR) + "/kvdrill");
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    for (const char* name : {"CI", "GITHUB_ACTIONS", "NO_COLOR"}) ::unsetenv(name);
    ::setenv("XDG_CACHE_HOME", (root_ + "/cache").c_str(), 1);
    for (const auto& [name, value] : environment_) ::setenv(name.c_str(), value.c_str(), 1);
    if (prepare_ && !prepare_()) ::_exit(kNotPrepared);
    const int out = ::open((root_ + "/out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    const int err = ::open((root_ + "/err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    ::dup2(terminal_ < 0 ? out : terminal_, 1);
    ::dup2(errors_ < 0 ? err : errors_, 2);
    if (input_ >= 0) ::dup2(input_, 0);
    if (!folder_.empty() && ::chdir(folder_.c_str()) != 0) ::_exit(kNotPrepared);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  ProgramEnd end(pid_t pid) {
    ProgramEnd outcome;
    EXPECT_EQ(::waitpid(pid, &outcome.status, 0), pid);
    outcome.out = slurp(root_ + "/out");
    outcome.err = slurp(root_ + "/err");
    return outcome;
  }

  ProgramEnd run(std::vector<std::string> words) {
    if (words[0] == "run" || words[0] == "prove") {
      words.push_back("--runs");
      words.push_back(root_ + "/runs");
    }
    return end(start(words));
  }

  // Starts a drill that lasts and returns when it is in the middle, in its folder `lasting_`; of
  // several drills it is the one that says so by its file.
  pid_t start_lasting(const std::vector<std::string>& more = {}) {
    const std::string path = file("lasts.toml", lasts_);
    const int watch = ::inotify_init1(IN_CLOEXEC);
    const std::string runs = root_ + "/runs";
    std::map<int, std::string> folders = {
        {::inotify_add_watch(watch, runs.c_str(), IN_CREATE), runs}};
    EXPECT_GE(folders.begin()->first, 0);
    std::vector<std::string> words = {"run", path, "--runs", runs};
    words.insert(words.end(), more.begin(), more.end());
    const pid_t pid = start(words);
    for (lasting_.clear(); lasting_.empty();) {
      const auto [where, name] = created(watch);
      if (name.empty()) break;
      if (folders[where] != runs) {
        if (name == kMiddle) lasting_ = folders[where];
        continue;
      }
      const std::string folder = runs + "/" + name;
      folders[::inotify_add_watch(watch, folder.c_str(), IN_CREATE)] = folder;
      if (std::filesystem::exists(folder + "/" + kMiddle)) lasting_ = folder;
    }
    ::close(watch);
    return pid;
  }

  std::vector<std::string> runs_left() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/runs"))
      names.push_back(entry.path());
    return names;
  }

  // Reaps what was left to us until there is nobody; so every process of the run has ended.
  void everybody_ends() {
    int status = 0;
    while (::wait(&status) > 0) {
    }
    EXPECT_EQ(errno, ECHILD);
  }

  static int code(const ProgramEnd& outcome) {
    return WIFEXITED(outcome.status) ? WEXITSTATUS(outcome.status) : -WTERMSIG(outcome.status);
  }

  // Nobody is left, not even somebody who is about to end.
  static bool nobody_is_left() { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

  // A shell script that can be started.
  std::string script(const std::string& name, const std::string& text) {
    std::string path = file(name, "#!/bin/sh\n" + text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  static constexpr int kNotPrepared = 99;  // the exit code when prepare_ said no
  std::string root_;
  std::string lasts_ = kLasts, lasting_;
  std::map<std::string, std::string> environment_;  // added to the program's
  std::string folder_;                              // where it is started; empty: here
  int terminal_ = -1;                               // its standard output, if not a file
  int errors_ = -1, input_ = -1;                    // its standard error and input, likewise
  std::function<bool()> prepare_;                   // called in the program's process

 private:
  // What appeared in which watched folder, one after the other; several may come at once. An empty
  // name: nothing more can be told.
  std::pair<int, std::string> created(int watch) {
    while (created_.empty()) {
      alignas(inotify_event) char buffer[4096];
      const ssize_t n = ::read(watch, buffer, sizeof buffer);
      if (n <= 0) return {};
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        if (event->len > 0) created_.emplace_back(event->wd, event->name);
        at += static_cast<ssize_t>(sizeof(inotify_event)) + event->len;
      }
    }
    auto next = std::move(created_.front());
    created_.pop_front();
    return next;
  }
  static constexpr const char* kMiddle = "in_the_middle";
  std::deque<std::pair<int, std::string>> created_;
};

}  // namespace kv::drill

#endif  // HARNESS_CLI_KVDRILL_TEST_SUPPORT_H_
