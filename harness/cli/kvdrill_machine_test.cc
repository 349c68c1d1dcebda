// The program from the outside, on machines and under parents as they are: where its folders lie,
// what it inherits, what it is not given.

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "harness/cli/kvdrill_test_support.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KvdrillMachine : public Kvdrill {
 protected:
  // The program goes on as the first process of a pid namespace; its parent waits for it and ends
  // alike. False: there can be none here.
  static bool in_a_pid_namespace() {
    if (::unshare(CLONE_NEWNS | CLONE_NEWPID) != 0) return false;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    const pid_t inner = ::fork();
    if (inner == 0) return true;
    int status = 0;
    if (inner < 0 || ::waitpid(inner, &status, 0) != inner) ::_exit(kNotPrepared);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
  }
  // The program as a user without rights, who may have so many processes and threads.
  bool as_nobody(rlim_t processes) const {
    constexpr uid_t kNobody = 65534;
    const struct rlimit limit { processes, processes };
    const std::string program = std::string(KVDRILL_BUILD_DIR) + "/kvdrill";
    return ::chown(root_.c_str(), kNobody, kNobody) == 0 &&
           ::chown((root_ + "/runs").c_str(), kNobody, kNobody) == 0 &&
           ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0 &&
           ::setrlimit(RLIMIT_NPROC, &limit) == 0 && ::access(program.c_str(), X_OK) == 0;
  }
};

TEST_F(KvdrillMachine, TheFolderOfTheRunsMayBeCalledAnything) {
  fs::create_directory(root_ + "/far");
  fs::create_directory_symlink(root_ + "/runs", root_ + "/link");
  fs::create_directory_symlink("../runs", root_ + "/far/relative");
  folder_ = root_;
  const std::string drill = file("a.toml", kPasses);
  for (const std::string& runs :
       {root_ + "/runs/", root_ + "//runs//.", std::string("runs"), std::string("./runs/"),
        root_ + "/link", root_ + "/link/", std::string("link/../runs"), root_ + "/far/relative",
        root_ + "/link/made/anew/"}) {
    const auto outcome = end(start({"run", drill, "--runs", runs}));
    EXPECT_EQ(code(outcome), 0) << runs << "\n" << outcome.out << outcome.err;
    EXPECT_EQ(code(end(start({"doctor", "--runs", runs}))), 0) << runs;
  }
  fs::remove_all(root_ + "/runs/made");
  EXPECT_THAT(runs_left(), IsEmpty());
}

TEST_F(KvdrillMachine, SignalsThatTheParentIgnoresOrBlocksAreInNobodysWay) {
  prepare_ = [] {
    sigset_t all;
    ::sigfillset(&all);
    for (const int signal : {SIGCHLD, SIGPIPE, SIGHUP, SIGINT, SIGTERM}) {
      ::signal(signal, SIG_IGN);
    }
    return ::sigprocmask(SIG_SETMASK, &all, nullptr) == 0;
  };
  const auto outcome = run({"run", file("a.toml", kPasses)});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_EQ(code(run({"doctor", "--runs", root_ + "/runs"})), 0);
  EXPECT_TRUE(nobody_is_left());
}

TEST_F(KvdrillMachine, ABlockedSignalEndsItAllTheSame) {
  prepare_ = [] {
    sigset_t all;
    ::sigfillset(&all);
    return ::sigprocmask(SIG_SETMASK, &all, nullptr) == 0;
  };
  const pid_t pid = start_lasting();
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  EXPECT_EQ(code(end(pid)), 130);
  everybody_ends();
  EXPECT_THAT(runs_left(), IsEmpty());
}

// As nohup starts it.
TEST_F(KvdrillMachine, ARunUnderNohupOutlivesTheTerminal) {
  lasts_.replace(lasts_.find("repeat = 1000000"), 16, "repeat = 300");
  prepare_ = [] { return ::signal(SIGHUP, SIG_IGN) != SIG_ERR; };
  const pid_t pid = start_lasting();
  ASSERT_EQ(::kill(pid, SIGHUP), 0);
  const auto outcome = end(pid);
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 passed"));
}

TEST_F(KvdrillMachine, TheProcOfAnotherPidNamespaceIsRefused) {
  prepare_ = in_a_pid_namespace;
  const auto outcome = run({"run", file("a.toml", kPasses)});
  if (code(outcome) == kNotPrepared) GTEST_SKIP() << "no namespace can be made here";
  EXPECT_EQ(code(outcome), 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("/proc is of another pid namespace"));
  EXPECT_THAT(outcome.err, HasSubstr("mount -t proc proc /proc"));
  const auto doctor = run({"doctor", "--runs", root_ + "/runs"});
  EXPECT_EQ(code(doctor), 1);
  EXPECT_THAT(doctor.out, HasSubstr("lacks  /proc"));
}

TEST_F(KvdrillMachine, NoProcIsRefused) {
  prepare_ = [] {
    return ::unshare(CLONE_NEWNS) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::umount2("/proc", MNT_DETACH) == 0;
  };
  const auto outcome = run({"run", file("a.toml", kPasses)});
  if (code(outcome) == kNotPrepared) GTEST_SKIP() << "/proc cannot be taken away here";
  EXPECT_EQ(code(outcome), 4) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("/proc does not know this process"));
}

TEST_F(KvdrillMachine, RunsAsTheFirstProcessOfAContainer) {
  prepare_ = [] {
    return in_a_pid_namespace() && ::mount("proc", "/proc", "proc", 0, nullptr) == 0;
  };
  const auto outcome = run({"run", file("a.toml", kPasses)});
  if (code(outcome) == kNotPrepared) GTEST_SKIP() << "no namespace can be made here";
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_THAT(runs_left(), IsEmpty());
}

// Whoever is refused first, from the runner itself to the engine's last thread.
TEST_F(KvdrillMachine, ALimitOnProcessesIsNotTheEnginesFault) {
  const std::string drill = file("a.toml", kPasses);
  int passed = 0;
  for (rlim_t processes = 1; processes < 32 && passed == 0; ++processes) {
    prepare_ = [this, processes] { return as_nobody(processes); };
    const auto outcome = run({"run", drill, "-j", "1"});
    if (code(outcome) == kNotPrepared) GTEST_SKIP() << "it cannot be another user's here";
    passed += code(outcome) == 0 ? 1 : 0;
    if (passed > 0) break;
    EXPECT_EQ(code(outcome), 4) << processes << ":\n" << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr("ulimit -u")) << processes;
    EXPECT_TRUE(nobody_is_left());
  }
  EXPECT_EQ(passed, 1) << "with enough of them it runs";
}

TEST_F(KvdrillMachine, ALimitOnTheSizeOfFilesIsNotTheEnginesFault) {
  for (const rlim_t bytes : {0, 512, 100'000, 4'000'000}) {
    prepare_ = [bytes] {
      const struct rlimit limit { bytes, bytes };
      return ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
    };
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    terminal_ = ends[1];  // what it says does not come into a file
    const pid_t pid = start({"run", file("a.toml", kPasses), "--runs", root_ + "/runs"});
    ::close(ends[1]);
    std::string said;
    char chunk[4096];
    for (ssize_t n; (n = ::read(ends[0], chunk, sizeof chunk)) > 0;) {
      said.append(chunk, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    EXPECT_EQ(code(end(pid)), 4) << bytes << "\n" << said;
    EXPECT_TRUE(nobody_is_left());
  }
}

}  // namespace
}  // namespace kv::drill
