#include "harness/process/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "harness/process/leftovers.h"

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines(const std::vector<OpenDescriptor>& descriptors) {
  std::vector<std::string> all;
  for (const OpenDescriptor& one : descriptors) all.push_back(to_string(one));
  return all;
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }  // open in children unless somebody closes it there
  ~Pipe() {
    ::close(ends[0]);
    close_write();
  }
  void close_write() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  // Whether nobody can write any more, once our own write end is closed; waits at most so long.
  bool ends_within(int ms) {
    close_write();
    struct pollfd end = {ends[0], 0, 0};
    return ::poll(&end, 1, ms) == 1 && (end.revents & POLLHUP) != 0;
  }
  // Until all write ends are closed.
  std::string read_all() {
    close_write();
    return read_lines(-1);
  }
  std::string read_lines(int lines) {
    std::string text;
    char byte;
    while (lines != 0 && ::read(ends[0], &byte, 1) == 1) {
      text.push_back(byte);
      if (byte == '\n') --lines;
    }
    return text;
  }
  int ends[2];
};

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kdpXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    for (const int fd : files_) ::close(fd);
    // A child of a test that failed half way.
    end_descendants(10'000, nullptr);
    remove_tree(folder_);
  }

  int made(const std::string& name) {
    const int fd =
        ::open((folder_ + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    EXPECT_GE(fd, 0) << name;
    files_.push_back(fd);
    return fd;
  }
  Launch shell(const std::string& script) {
    Launch launch;
    launch.program = "/bin/sh";
    launch.arguments = {"-c", script};
    launch.folder = folder_;
    launch.out = made("/out");
    launch.err = made("/err");
    return launch;
  }
  static Child started(const Launch& launch) {
    auto child = start(launch);
    if (!child) {
      ADD_FAILURE() << child.error();
      return Child(0, -1);
    }
    return std::move(*child);
  }
  // Starts a script that stops itself, and waits until it has.
  Child stopped(Launch launch) {
    launch.arguments.back() += "kill -STOP $$";
    Child child = started(launch);
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED), 0);
    return child;
  }
  static End ended(Child& child) {
    struct pollfd end = {child.pidfd(), POLLIN, 0};
    EXPECT_EQ(::poll(&end, 1, child.pidfd() < 0 ? 0 : -1), 1);
    const auto how = child.reap();
    EXPECT_TRUE(how.has_value());
    return how.value_or(End{});
  }
  static void kill_and_reap(Child& child) {
    EXPECT_TRUE(child.signal(SIGKILL));
    EXPECT_EQ(ended(child), (End{true, SIGKILL, false, false}));
  }
  std::string output_of_script(const std::string& script) {
    Child child = started(shell(script));
    EXPECT_EQ(ended(child), End{}) << contents(folder_ + "/err");
    return contents(folder_ + "/out");
  }

  std::string folder_;
  std::vector<int> files_;
};

// ---- what Boost.Process leaves open, one test for each

TEST_F(ProcessTest, DescriptorsThatWereNotGivenAreClosedInTheChild) {
  Pipe low, high, given;
  const int far = ::fcntl(high.ends[1], F_DUPFD, 200);  // beyond all that are given
  Launch launch = shell("");
  launch.descriptors = {{given.ends[1], 60}};
  Child child = stopped(launch);
  EXPECT_THAT(
      lines(open_descriptors(child.pid())),
      ElementsAre("0 -> /dev/null", EndsWith("/out"), EndsWith("/err"), StartsWith("60 -> pipe:")));
  ::close(far);
  EXPECT_TRUE(low.ends_within(0));
  EXPECT_TRUE(high.ends_within(0));
  kill_and_reap(child);
}

int exit_handler_fd = -1;

TEST_F(ProcessTest, ItsLimitsHoldSoftAndHard) {
  Launch launch = shell("ulimit -Sn; ulimit -Hn; ulimit -Sf; ulimit -Hf");
  launch.limits = {{RLIMIT_NOFILE, 33}, {RLIMIT_FSIZE, 512 * 1024}};
  Child child = started(launch);
  EXPECT_EQ(ended(child), (End{false, 0, false, false}));
  EXPECT_EQ(contents(folder_ + "/out"), "33\n33\n1024\n1024\n");
}

TEST_F(ProcessTest, AFailedExecRunsNoExitHandlersOfOurs) {
  Pipe pipe;
  exit_handler_fd = pipe.ends[1];
  std::atexit([] {
    if (exit_handler_fd >= 0 && ::write(exit_handler_fd, "x", 1) != 1) ::_exit(1);
  });
  Launch launch = shell("");
  launch.program = "/no/such/program";
  EXPECT_FALSE(start(launch).has_value());
  exit_handler_fd = -1;
  EXPECT_EQ(pipe.read_all(), "");
}

TEST_F(ProcessTest, AFailedExecLeavesNoZombieAndNoDescriptor) {
  Launch launch = shell("");
  const auto before = open_descriptors(::getpid());
  launch.program = "/no/such/program";
  EXPECT_FALSE(start(launch).has_value());
  EXPECT_FALSE(has_children());
  EXPECT_EQ(open_descriptors(::getpid()), before);
}

TEST_F(ProcessTest, AKilledChildIsReaped) {
  Child child = stopped(shell(""));
  EXPECT_EQ(child.reap(), std::nullopt) << "a stopped child has not ended";
  kill_and_reap(child);
  EXPECT_FALSE(has_children());
  EXPECT_FALSE(child.signal(0));
  EXPECT_EQ(child.reap(), (End{true, SIGKILL, false, false})) << "the same answer again";
}

TEST_F(ProcessTest, TellsExit11FromSignal11) {
  Child exited = started(shell("exit 11"));
  Child crashed = started(shell("kill -SEGV $$"));
  EXPECT_EQ(ended(exited), (End{false, 11, false, false}));
  EXPECT_EQ(ended(crashed), (End{true, SIGSEGV, false, false}));
  EXPECT_EQ(to_string(*exited.reap()), "exit code 11");
  EXPECT_EQ(to_string(*crashed.reap()), "SIGSEGV");
}

TEST_F(ProcessTest, AnEndThatSomebodyElseTookIsUnknownNotCode0) {
  Child child = started(shell("kill -SEGV $$"));
  ASSERT_EQ(::waitpid(child.pid(), nullptr, 0), child.pid());
  const auto end = child.reap();
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->unknown);
  EXPECT_EQ(to_string(*end), "an end that somebody else took note of");
}

// ---- what a child is given

// Whatever the numbers: those that we use ourselves, exchanged, and those that are free, where a
// careless launcher would keep its copies.
TEST_F(ProcessTest, DescriptorsArriveUnderAnyNumbers) {
  std::vector<int> ours;
  for (int i = 0; i < 40; ++i) {
    ours.push_back(::open((folder_ + "/" + std::to_string(i)).c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_GE(ours.back(), 0);
  }
  Launch launch = shell("");
  launch.descriptors = {{ours[0], ours[1]}, {ours[1], ours[0]}};
  for (int i = 2; i < 40; ++i) launch.descriptors.emplace_back(ours[i], ours[39] + 15 + i);
  Child child = stopped(launch);
  const auto in_child = open_descriptors(child.pid()), here = open_descriptors(::getpid());
  const auto target = [](const std::vector<OpenDescriptor>& all, int fd) {
    const auto one = std::find_if(all.begin(), all.end(),
                                  [&](const OpenDescriptor& open) { return open.number == fd; });
    return one == all.end() ? "closed" : one->target;
  };
  for (const auto& [given, its] : launch.descriptors) {
    EXPECT_EQ(target(in_child, its), target(here, given)) << given << " as " << its;
  }
  EXPECT_EQ(in_child.size(), 3 + launch.descriptors.size());
  kill_and_reap(child);
  for (const int fd : ours) ::close(fd);
}

// Boost's own pipe, on which a failing exec is reported, must not lie on a number that is assigned.
TEST_F(ProcessTest, AFailedExecIsReportedWhateverNumbersAreGiven) {
  Pipe pipe;
  Launch launch = shell("");
  launch.program = "/no/such/program";
  for (int its = 3; its < 40; ++its) launch.descriptors.emplace_back(pipe.ends[1], its);
  const auto child = start(launch);
  ASSERT_FALSE(child.has_value());
  EXPECT_THAT(child.error(), HasSubstr("No such file"));
}

TEST_F(ProcessTest, TheEnvironmentIsExactlyTheGivenOne) {
  Launch launch = shell("");
  launch.program = "/usr/bin/env";
  launch.arguments.clear();
  launch.environment = {{"A", "1"}, {"B", "two words"}, {"EMPTY", ""}};
  Child child = started(launch);
  EXPECT_EQ(ended(child), End{});
  EXPECT_EQ(contents(folder_ + "/out"), "A=1\nB=two words\nEMPTY=\n");
}

TEST_F(ProcessTest, ArgumentsArriveAsTheyAre) {
  Launch launch = shell("printf '<%s>' \"$@\"");
  for (const char* argument : {"name", "", "a b", "$HOME", "\"'"}) {
    launch.arguments.emplace_back(argument);
  }
  Child child = started(launch);
  EXPECT_EQ(ended(child), End{});
  EXPECT_EQ(contents(folder_ + "/out"), "<><a b><$HOME><\"'>");
}

TEST_F(ProcessTest, RunsInItsFolderWithNothingToRead) {
  EXPECT_EQ(output_of_script("pwd -P; read line || echo end"), folder_ + "\nend\n");
}

TEST_F(ProcessTest, AProgramsPathIsOursNotItsFolders) {
  ASSERT_EQ(::symlink("/bin/echo", (folder_ + "/tool").c_str()), 0);
  char here[4096];
  ASSERT_NE(::getcwd(here, sizeof here), nullptr);
  std::string up;
  for (const char* at = here; *at != 0; ++at) up += *at == '/' && at[1] != 0 ? "../" : "";
  Launch launch = shell("");
  launch.program = up + folder_.substr(1) + "/tool";
  launch.arguments = {"hello"};
  launch.folder = folder_;  // below so many others that the way up leads elsewhere from there
  for (int depth = 0; depth < 20; ++depth) launch.folder += "/d";
  std::filesystem::create_directories(launch.folder);
  Child child = started(launch);
  EXPECT_EQ(ended(child), End{});
  EXPECT_EQ(contents(folder_ + "/out"), "hello\n");
}

TEST_F(ProcessTest, EachOutputGoesWhereItIsToldTo) {
  EXPECT_EQ(output_of_script("echo new; echo wrong >&2"), "new\n");
  EXPECT_EQ(contents(folder_ + "/err"), "wrong\n");
}

TEST_F(ProcessTest, BothOutputsMayBeOne) {
  Launch launch = shell("echo one; echo two >&2; echo three");
  launch.err = launch.out;
  Child child = started(launch);
  EXPECT_EQ(ended(child), End{});
  EXPECT_EQ(contents(folder_ + "/out"), "one\ntwo\nthree\n");
}

TEST_F(ProcessTest, SignalsAreAsInAFreshProcess) {
  const auto old_handler = ::signal(SIGUSR1, SIG_IGN);
  const auto old_pipe = ::signal(SIGPIPE, SIG_IGN);
  sigset_t blocked, old_mask;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &old_mask);
  const std::string status =
      output_of_script("while read line; do echo \"$line\"; done < /proc/self/status");
  ::sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  ::signal(SIGUSR1, old_handler);
  ::signal(SIGPIPE, old_pipe);
  EXPECT_THAT(status, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("SigIgn:\t0000000000000000"));
}

TEST_F(ProcessTest, LeadsItsOwnProcessGroup) {
  Child child = stopped(shell(""));
  EXPECT_EQ(::getpgid(child.pid()), child.pid());
  kill_and_reap(child);
}

TEST_F(ProcessTest, LeavesNoCoreFile) {
  Child child = started(shell("kill -STOP $$"));
  std::ifstream limits("/proc/" + std::to_string(child.pid()) + "/limits");
  std::string soft = "?", hard = "?";
  for (std::string line; std::getline(limits, line);) {
    std::istringstream words(line);
    std::string max, core, file, size;
    if (line.starts_with("Max core file size")) {
      words >> max >> core >> file >> size >> soft >> hard;
    }
  }
  kill_and_reap(child);
  EXPECT_EQ(soft, "0");
  EXPECT_EQ(hard, "0");
}

TEST_F(ProcessTest, DiesWithItsSupervisor) {
  Pipe held, told;
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    Launch launch = shell("kill -STOP $$");
    launch.descriptors = {{held.ends[1], 3}};
    const auto child = start(launch);
    const pid_t pid = child.has_value() ? child->pid() : 0;
    if (::write(told.ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
    for (;;) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(told.ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  ::kill(supervisor, SIGKILL);
  ASSERT_EQ(::waitpid(supervisor, nullptr, 0), supervisor);
  const bool died = held.ends_within(20'000);
  EXPECT_TRUE(died) << "the child, which holds the other end, lives";
  if (!died) ::kill(child, SIGKILL);
}

TEST_F(ProcessTest, AnErrorSaysWhichProgramAndWhy) {
  const auto why = [](Launch launch) {
    const auto child = start(launch);
    return child ? "(started)" : child.error();
  };
  Launch launch = shell("");
  launch.program = folder_;
  EXPECT_EQ(why(launch), "cannot start " + folder_ + ": Permission denied");
  launch.program = folder_ + "/script";
  std::ofstream(launch.program) << "#!/no/such/interpreter\n";
  EXPECT_EQ(why(launch), "cannot start " + launch.program + ": Permission denied");
  ASSERT_EQ(::chmod(launch.program.c_str(), 0700), 0);
  EXPECT_THAT(why(launch), HasSubstr("its interpreter or loader is not"));

  launch = shell("");
  launch.folder = "/no/such/folder";
  EXPECT_EQ(why(launch), "cannot start /bin/sh: folder /no/such/folder: No such file or directory");
  launch = shell("");
  launch.out = 999;
  EXPECT_EQ(why(launch), "cannot start /bin/sh: its output: Bad file descriptor");
  launch = shell("");
  launch.descriptors = {{999, 3}};
  EXPECT_EQ(why(launch), "cannot start /bin/sh: descriptor 999 as 3: Bad file descriptor");
  launch.descriptors = {{0, 2}};
  EXPECT_THAT(why(launch), HasSubstr("descriptor 0 as 2, expected 3 to 255"));
  EXPECT_FALSE(has_children());
}

// ---- trees of processes

class TreeTest : public ProcessTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ProcessTest::SetUp();
  }
  // Starts the script, which writes `count` pids into the pipe that is its descriptor 3.
  std::vector<pid_t> start_tree(const std::string& script, int count) {
    Launch launch = shell(script);
    launch.descriptors = {{pipe_.ends[1], 3}};
    root_ = started(launch).pid();
    std::istringstream lines(pipe_.read_lines(count));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; lines >> pid;) pids.push_back(pid);
    EXPECT_EQ(static_cast<int>(pids.size()), count);
    return pids;
  }
  Pipe pipe_;
  pid_t root_ = 0;
};

TEST_F(TreeTest, FindsAndEndsDescendantsOfAllDepths) {
  const auto pids = start_tree(
      "echo $$ >&3; sh -c 'echo $$ >&3; sh -c \"echo \\$\\$ >&3; kill -STOP \\$\\$\" & "
      "kill -STOP $$' & kill -STOP $$",
      3);
  EXPECT_EQ(descendants(), pids);  // each writes its pid before it starts the next
  EXPECT_EQ(process_name(pids[2]), "sh");
  std::vector<pid_t> killed;
  EXPECT_TRUE(end_descendants(60'000, &killed));
  EXPECT_EQ(killed, pids);
  EXPECT_FALSE(has_children());
  EXPECT_THAT(descendants(), IsEmpty());
  EXPECT_EQ(process_name(pids[2]), "?");
}

TEST_F(TreeTest, EndsOrphansInSessionsOfTheirOwn) {
  const auto pids = start_tree("setsid sh -c 'echo $$ >&3; kill -STOP $$' & exit 0", 1);
  siginfo_t info{};  // so that the other one is an orphan
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(root_), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(descendants(), pids);
  std::vector<pid_t> killed;
  EXPECT_TRUE(end_descendants(60'000, &killed));
  EXPECT_EQ(killed, pids) << "the one that had ended was not killed";
  EXPECT_FALSE(has_children());
}

TEST_F(TreeTest, WithoutDescendantsThereIsNothingToEnd) {
  std::vector<pid_t> killed;
  EXPECT_TRUE(end_descendants(0, &killed));
  EXPECT_THAT(killed, IsEmpty());
}

// ---- output_of

TEST_F(TreeTest, OutputOfAProgramIsTakenWhole) {
  EXPECT_EQ(
      output_of("/bin/sh", {"-c", "echo $A; echo no >&2"}, {{"A", "yes"}}, 60'000).value_or("?"),
      "yes\n");
  const auto large = output_of("/bin/sh", {"-c", "head -c 1000000 /dev/zero"}, {}, 60'000);
  ASSERT_TRUE(large.has_value()) << large.error();
  EXPECT_EQ(large->size(), 1'000'000u);
  EXPECT_FALSE(has_children());
}

TEST_F(TreeTest, OutputOfAFailingProgramSaysHow) {
  const auto why = [](const std::string& script, int limit_ms) {
    const auto output = output_of("/bin/sh", {"-c", script}, {}, limit_ms);
    return output ? "(taken) " + *output : output.error();
  };
  EXPECT_EQ(why("echo one >&2; echo 'bad thing' >&2; exit 3", 60'000),
            "/bin/sh ended with exit code 3: bad thing");
  EXPECT_EQ(why("kill -SEGV $$", 60'000), "/bin/sh ended with SIGSEGV");
  EXPECT_EQ(why("echo waiting >&2; kill -STOP $$", 30),
            "/bin/sh did not end within 30 ms: waiting");
  EXPECT_EQ(why("head -c 20000000 /dev/zero", 60'000), "/bin/sh wrote more than 16777216 bytes");
  EXPECT_FALSE(has_children());
}

TEST_F(TreeTest, OutputOfAProgramEndsWhomItLeavesBehind) {
  const auto output = output_of("/bin/sh", {"-c", "sh -c 'kill -STOP $$' & echo done"}, {}, 60'000);
  EXPECT_EQ(output.value_or("?"), "done\n");
  EXPECT_FALSE(has_children()) << "its group was killed, and the orphan reaped";
}

}  // namespace
}  // namespace kv::drill
