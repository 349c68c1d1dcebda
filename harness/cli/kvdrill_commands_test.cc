// The program from the outside: what helps a person who hunts a failure.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <termios.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cli/kvdrill_test_support.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class KvdrillCommands : public Kvdrill {
 protected:
  static std::string replaced(std::string text, const std::string& what, const std::string& by) {
    text.replace(text.find(what), what.size(), by);
    return text;
  }
  std::string passing(const std::string& name) {
    return file(name + ".toml", replaced(kPasses, "\"passes\"", "\"" + name + "\""));
  }
  std::string failing(const std::string& name) {
    const std::string text = replaced(kPasses, "value = \"done\"", "value = \"dune\"");
    return file(name + ".toml", replaced(text, "\"passes\"", "\"" + name + "\""));
  }
  // All that the program writes on a terminal.
  std::string on_a_terminal(const std::vector<std::string>& words) {
    int ours = -1, its = -1;
    EXPECT_EQ(::openpty(&ours, &its, nullptr, nullptr, nullptr), 0);
    terminal_ = its;
    const pid_t pid = start(words);
    ::close(its);
    terminal_ = -1;
    std::string all;
    char chunk[4096];
    for (ssize_t n = 1; n > 0;) {
      n = ::read(ours, chunk, sizeof chunk);
      if (n > 0) all.append(chunk, static_cast<std::size_t>(n));
    }
    ::close(ours);
    end(pid);
    return all;
  }
};

TEST_F(KvdrillCommands, LastFailedRunsWhatFailedUntilItPasses) {
  passing("good");
  failing("bad");
  const std::vector<std::string> words = {"run", root_ + "/good.toml", root_ + "/bad.toml"};
  std::vector<std::string> again = words;
  again.push_back("--last-failed");
  auto outcome = run(again);
  EXPECT_EQ(code(outcome), 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("nothing failed last time"));
  EXPECT_EQ(code(run(words)), 1);
  outcome = run(again);
  EXPECT_EQ(code(outcome), 1);
  EXPECT_THAT(outcome.out, HasSubstr("kvdrill: 1 drill of 2 files on"));
  // A run of others does not forget it.
  EXPECT_EQ(code(run({"run", root_ + "/good.toml"})), 0);
  passing("bad");
  outcome = run(again);
  EXPECT_EQ(code(outcome), 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("1 passed"));
  EXPECT_THAT(run(again).out, HasSubstr("nothing failed last time"));
}

TEST_F(KvdrillCommands, LastFailedSaysWhenItsMemoryIsSomethingElse) {
  failing("bad");
  EXPECT_EQ(code(run({"run", root_ + "/bad.toml"})), 1);
  for (const auto& entry : fs::directory_iterator(root_ + "/cache/kvdrill/last-failed")) {
    std::ofstream(entry.path()) << "[]";
  }
  const auto outcome = run({"run", root_ + "/bad.toml", "--last-failed"});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_THAT(outcome.err, HasSubstr("expected {\"failed\": [names]}"));
  EXPECT_THAT(run({"run", root_ + "/bad.toml"}).err, HasSubstr("will not know of this run"));
  for (const auto& entry : fs::directory_iterator(root_ + "/cache/kvdrill/last-failed")) {
    EXPECT_EQ(slurp(entry.path()), "[]");
  }
}

TEST_F(KvdrillCommands, ATerminalHasAProgressLineAndColours) {
  environment_["TERM"] = "xterm";
  const std::string all = on_a_terminal({"run", passing("good"), "--runs", root_ + "/runs"});
  EXPECT_THAT(all, HasSubstr("\r[0/1] 0 s: good\x1b[K"));
  EXPECT_THAT(all, HasSubstr("\r\x1b[K  \x1b[32mpass \x1b[0m  good"));
}

TEST_F(KvdrillCommands, NoColorAndCiAreRespectedOnATerminal) {
  environment_ = {{"TERM", "xterm"}, {"CI", "true"}, {"NO_COLOR", "1"}};
  const std::string all = on_a_terminal({"run", passing("good"), "--runs", root_ + "/runs"});
  EXPECT_THAT(all, HasSubstr("  pass   good"));
  EXPECT_THAT(all, Not(HasSubstr("\x1b")));
}

TEST_F(KvdrillCommands, AFileHasNeither) {
  environment_["TERM"] = "xterm";
  const auto outcome = run({"run", passing("good")});
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\r")));
}

TEST_F(KvdrillCommands, GithubIsToldTheLineOfAFailure) {
  const std::string path = failing("bad");
  EXPECT_THAT(run({"run", path}).out, Not(HasSubstr("::error")));
  environment_["GITHUB_ACTIONS"] = "true";
  const auto outcome = run({"run", path});
  EXPECT_THAT(outcome.out,
              HasSubstr("\n::error file=" + path +
                        ",line=10,col=3,title=bad::stopped: fail: stop returned 'done', expected "
                        "'dune'\n"));
  const auto json = run({"run", path, "--format", "json"});
  EXPECT_TRUE(nlohmann::json::accept(json.out)) << json.out;
  EXPECT_THAT(json.err, HasSubstr("::error file="));
}

TEST_F(KvdrillCommands, CompareTellsWhatGotWorse) {
  const std::string good = file("good.json", run({"run", passing("a"), "--format", "json"}).out);
  const std::string bad = file("bad.json", run({"run", failing("a"), "--format", "json"}).out);
  const auto worse = run({"compare", good, bad});
  EXPECT_EQ(code(worse), 1) << worse.err;
  EXPECT_THAT(worse.out, HasSubstr("worse    a: pass -> fail: stopped: stop returned 'done'"));
  const auto mended = run({"compare", bad, good, "--format", "json"});
  EXPECT_EQ(code(mended), 0);
  EXPECT_EQ(nlohmann::json::parse(mended.out)["mended"][0]["name"], "a");
  EXPECT_EQ(code(run({"compare", good, good})), 0);
}

TEST_F(KvdrillCommands, CompareRefusesWhatIsNoResult) {
  const std::string good = file("good.json", run({"run", passing("a"), "--format", "json"}).out);
  for (const char* text : {"", "{}", "[1]", "{\"scenarios\": [{\"name\": 3}]}"}) {
    const std::string foreign = file("foreign.json", text);
    const auto outcome = run({"compare", good, foreign});
    EXPECT_EQ(code(outcome), 2) << text;
    EXPECT_THAT(outcome.err, HasSubstr(foreign));
    EXPECT_THAT(outcome.err, HasSubstr("expected what 'kvdrill run --format json'")) << text;
  }
  EXPECT_EQ(code(run({"compare", good, root_ + "/absent.json"})), 2);
  EXPECT_EQ(code(run({"compare", good})), 2);
}

TEST_F(KvdrillCommands, CompareReadsFilesAndPipesToTheirEndsAndNothingElse) {
  const std::string good = file("good.json", run({"run", passing("a"), "--format", "json"}).out);
  const auto endless = run({"compare", "/dev/zero", good});
  EXPECT_EQ(code(endless), 2);
  EXPECT_THAT(endless.err, HasSubstr("/dev/zero: neither a regular file nor a pipe"));
  const std::string pipe = root_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(code(run({"compare", pipe, good})), 2) << "nobody writes it, and nobody is waited for";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text = slurp(good);
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  input_ = ends[0];
  const auto piped = run({"compare", good, "/dev/stdin"});
  ::close(ends[0]);
  EXPECT_EQ(code(piped), 0) << piped.err;
  EXPECT_THAT(piped.out, HasSubstr("1 the same"));
}

TEST_F(KvdrillCommands, AFilterThatMatchesNothingIsAnErrorOfEveryCommand) {
  const std::string path = passing("a");
  passing("b");
  for (const char* command : {"run", "list", "lint", "prove"}) {
    const auto outcome = run({command, path, "--filter", "absent*"});
    EXPECT_EQ(code(outcome), 2) << command;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_THAT(outcome.err, HasSubstr("--filter 'absent*'")) << command;
  }
  const auto one = run({"list", path, root_ + "/b.toml", "--filter", "b"});
  EXPECT_EQ(code(one), 0);
  EXPECT_THAT(one.out, Not(HasSubstr("a.toml")));
  EXPECT_THAT(one.out, HasSubstr("1 drill, 0 proofs in 1 file\n"));
}

TEST_F(KvdrillCommands, AStandardErrorThatCannotBeWrittenChangesNoExitCode) {
  errors_ = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(errors_, 0);
  EXPECT_EQ(code(run({"list", passing("a"), "--filter", "absent"})), 2);
  EXPECT_EQ(code(run({"compare", root_ + "/absent", root_ + "/absent"})), 2);
  environment_["GITHUB_ACTIONS"] = "true";
  EXPECT_EQ(code(run({"run", failing("b"), "--format", "json"})), 1);
  ::close(errors_);
}

TEST_F(KvdrillCommands, AReportTakesNobodysPlace) {
  const std::string drill = passing("a"), report = root_ + "/report", page = report + "/index.html";
  fs::create_directory(report);
  const std::string own = file("own.html", "<p>by hand</p>");
  for (const bool linked : {false, true}) {
    fs::remove(page);
    if (linked) fs::create_symlink("../own.html", page);
    if (!linked) std::ofstream(page) << "<p>by hand</p>";
    for (const char* command : {"run", "prove"}) {
      const auto outcome = run({command, drill, "--report", report});
      EXPECT_EQ(code(outcome), 2) << command;
      EXPECT_THAT(outcome.err, HasSubstr("--report " + page + " was not written by kvdrill"));
      EXPECT_EQ(outcome.out, "") << "before anything ran";
      EXPECT_EQ(slurp(page), "<p>by hand</p>");
    }
  }
  EXPECT_EQ(slurp(own), "<p>by hand</p>");
  fs::remove(page);
  EXPECT_EQ(code(run({"run", drill, "--report", report})), 0);
  EXPECT_EQ(code(run({"run", drill, "--report", report})), 0) << "its own is replaced";
  std::ofstream(report + "/drills.json") << "{\"drills\": []}";
  const auto data = run({"run", drill, "--report", report});
  EXPECT_EQ(code(data), 2);
  EXPECT_THAT(data.err, HasSubstr("drills.json was not written by kvdrill"));
}

TEST_F(KvdrillCommands, JunitTakesNobodysPlace) {
  const std::string drill = passing("a"), path = file("j.xml", "<mine/>");
  const auto outcome = run({"run", drill, "--junit", path});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_THAT(outcome.err, HasSubstr("--junit " + path + " was not written by kvdrill"));
  EXPECT_EQ(slurp(path), "<mine/>");
  std::ofstream(path, std::ios::trunc).close();  // as mktemp leaves it
  for (int i = 0; i < 2; ++i) EXPECT_EQ(code(run({"run", drill, "--junit", path})), 0);
  EXPECT_THAT(slurp(path), HasSubstr("<testcase"));
}

TEST_F(KvdrillCommands, DoctorFindsThatDrillsCanRunAndLeavesNothing) {
  const auto outcome = run({"doctor", "--runs", root_ + "/runs"});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("ok     pidfd"));
  EXPECT_THAT(outcome.out, HasSubstr("drills can run here\n"));
  EXPECT_THAT(runs_left(), ::testing::IsEmpty());
  const std::string in_the_way = file("file", "");
  const auto without = run({"doctor", "--runs", in_the_way});
  EXPECT_EQ(code(without), 1);
  EXPECT_THAT(without.out, HasSubstr("lacks  run folder"));
}

TEST_F(KvdrillCommands, ANewDrillPassesAndItsProofHolds) {
  folder_ = root_;
  auto outcome = run({"new", "my_first-drill"});
  EXPECT_EQ(code(outcome), 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("kvdrill run scenarios/my_first-drill.toml"));
  outcome = run({"run"});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("pass   my first-drill"));
  outcome = run({"prove", "scenarios/my_first-drill.toml"});
  EXPECT_EQ(code(outcome), 0) << outcome.out << outcome.err;
}

TEST_F(KvdrillCommands, AFolderBesideOthersIsAPartOfASuiteAndNoJudgeOfWhatSurvives) {
  const std::string proven =
      std::string(kPasses) + "\n[[prove]]\nskip = [\"runtime.exit_hook\"]\nfails = [\"stopped\"]\n";
  for (const char* folder : {"/suite", "/suite/one", "/suite/two"})
    fs::create_directory(root_ + folder);
  file("suite/one/a.toml", proven);
  EXPECT_THAT(run({"prove", root_ + "/suite/one"}).out, HasSubstr(" surviving\n"));
  file("suite/two/settings.toml", "[server]\n");
  EXPECT_THAT(run({"prove", root_ + "/suite/one"}).out, HasSubstr(" surviving\n"));
  file("suite/two/b.toml", replaced(kPasses, "\"passes\"", "\"other\""));
  EXPECT_THAT(run({"prove", root_ + "/suite/one"}).out,
              HasSubstr("not judged (a part of the suite)"));
  fs::remove(root_ + "/suite/two/settings.toml");
  EXPECT_THAT(run({"prove", root_ + "/suite/two", root_ + "/suite/one"}).out,
              HasSubstr("not judged"));
  EXPECT_THAT(run({"prove", root_ + "/suite"}).out, HasSubstr(" surviving\n"));
}

TEST_F(KvdrillCommands, ANewDrillOverwritesNothingAndHasAGoodName) {
  const std::string path = file("mine.toml", "mine");
  auto outcome = run({"new", path});
  EXPECT_EQ(code(outcome), 2);
  EXPECT_THAT(outcome.err, HasSubstr(path + " is there already"));
  EXPECT_EQ(slurp(path), "mine");
  folder_ = root_;
  for (const char* name : {"", "a b", "../x", "a/b", ".toml", ".", "x\"y", "absent/x.toml"}) {
    EXPECT_EQ(code(run({"new", name})), 2) << name;
  }
  EXPECT_FALSE(fs::exists(root_ + "/scenarios"));
}

TEST_F(KvdrillCommands, OneIsNotMany) {
  EXPECT_EQ(run({"lint", passing("a")}).out, "1 file, no fault\n");
  EXPECT_THAT(run({"list", passing("a")}).out, HasSubstr("\n1 drill, 0 proofs in 1 file\n"));
}

TEST_F(KvdrillCommands, TheCommandThatRepeatsIsWhole) {
  const auto outcome =
      run({"run", failing("bad"), "--engine", std::string(KVDRILL_BUILD_DIR) + "/kvworker",
           "--driver", std::string(KVDRILL_BUILD_DIR) + "/card/libcuda.so.1"});
  EXPECT_THAT(outcome.out,
              HasSubstr(" --filter bad --engine " KVDRILL_BUILD_DIR
                        "/kvworker --driver " KVDRILL_BUILD_DIR "/card/libcuda.so.1 --runs " +
                        root_ + "/runs --keep\n"));
}

}  // namespace
}  // namespace kv::drill
