#include "harness/scenario/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "harness/scenario/scenario_test_support.h"

namespace kv::drill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kFull = R"(name  = "stalled header"
about = "A peer withholds the body."
cases = ["B01", "B02"]
params = {first = 4, where = "listener.read.body", limit = "10s"}

[processes]
worker = {role = "worker", rank = 1, stage = 2, device = 1, ipc = "i", arguments = ["--at=$where"]}
reader = {role = "reader", environment = {MODE = "$$$first"}}

[drill]
clock = "real"
deadline = "$limit"
events = 1024
card = {devices = 2, bytes = "2GiB"}
waive = [{check = "clean_logs", reason = "it warns"}]
not_under = ["asan"]
reason = "heap"
steps = [
  {start = "worker"},
  {start = "reader"},
  {client = "c", connect = "worker"},
  {client = "c", send = {cmd = "map", offsets = [0]}, first = "$first", deadline = "1s"},
  {id = "reached", wait = "$where", in = "worker"},
]

[[arm]]
name = "header"
set  = {first = 2, where = "listener.read.header"}

[[arm]]
name = "fails"
expect = "fail"
reason = "known"
deadline = "3s"
processes = {reader = {role = "producer"}, third = {role = "reader"}}
steps = [
  {start = "worker"},
  {start = "third"},
  {start = "reader"},
]

[matrix]
first = [1, 3]
where = ["vmm.map", "vmm.unmap"]

[[prove]]
skip = ["listener.stop.cancel_reads@worker", "listener.stop.drain"]
fails = ["reached", "no_hang"]
not_under = ["tsan"]
reason = "slow"

[[prove]]
arm = "header"
skip = ["listener.stop.drain"]
fails = ["reached"]
)";

TEST(LoaderTest, ABaseHasEverythingThatTheFileSays) {
  const Scenario scenario = loaded(kFull);
  EXPECT_EQ(scenario.file, "x.toml");
  EXPECT_EQ(scenario.name, "stalled header");
  EXPECT_EQ(scenario.about, "A peer withholds the body.");
  EXPECT_THAT(scenario.cases, ElementsAre("B01", "B02"));
  const Drill& base = scenario.drills.front();
  EXPECT_EQ(base.full_name(), "stalled header");
  EXPECT_EQ(base.position.line, 10);
  EXPECT_FALSE(base.manual_clock);
  EXPECT_EQ(base.deadline_ns, 10'000'000'000);
  EXPECT_EQ(base.events, 1024u);
  EXPECT_EQ(base.devices, 2);
  EXPECT_EQ(base.device_bytes, std::int64_t{2} << 30);
  ASSERT_EQ(base.waived.size(), 1u);
  EXPECT_EQ(base.waived[0].check, "clean_logs");
  EXPECT_EQ(base.waived[0].reason, "it warns");
  EXPECT_THAT(base.not_under, ElementsAre("asan"));
  EXPECT_EQ(base.not_under_reason, "heap");
  EXPECT_EQ(base.expect_fail, "");
}

TEST(LoaderTest, ProcessesAreInTheOrderOfTheFile) {
  const Scenario scenario = loaded(kFull);
  const auto& processes = scenario.drills.front().processes;
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].name, "worker");
  EXPECT_EQ(processes[0].role, "worker");
  EXPECT_EQ(processes[0].rank, 1);
  EXPECT_EQ(processes[0].stage, 2);
  EXPECT_EQ(processes[0].device, 1);
  EXPECT_EQ(processes[0].ipc, "i");
  EXPECT_EQ(processes[0].position.line, 7);
  EXPECT_EQ(processes[1].name, "reader");
  EXPECT_EQ(processes[1].rank, 0);
}

TEST(LoaderTest, LimitsAreOfAProcessAndASmallRootOfTheDrill) {
  const auto drill = [](const std::string& limits) {
    return "name = \"x\"\nabout = \"y\"\n[processes]\nworker = {role = \"worker\", limits = {" +
           limits + "}}\n[drill]\nsmall_root = \"64KiB\"\nsteps = [{start = \"worker\"}]\n";
  };
  const Drill base =
      loaded(drill(R"(descriptors = 64, address_space = "1GiB", file_size = "1MiB", core = 0)"))
          .drills.front();
  const std::map<int, std::uint64_t> expected = {{RLIMIT_NOFILE, 64},
                                                 {RLIMIT_AS, std::uint64_t{1} << 30},
                                                 {RLIMIT_FSIZE, std::uint64_t{1} << 20},
                                                 {RLIMIT_CORE, 0}};
  EXPECT_EQ(base.processes.at(0).limits, expected);
  EXPECT_EQ(base.small_root, std::int64_t{64} << 10);
  EXPECT_THAT(faults_of(drill("descriptors = 3")),
              ElementsAre("4:52: descriptors = 3, expected 16 to 2147483647"));
  EXPECT_THAT(faults_of(drill("")), ElementsAre("4:37: limits is empty, expected descriptors, "
                                                "address_space, file_size or core"));
  EXPECT_THAT(
      faults_of(drill("descriptor = 64")),
      ElementsAre("4:38: unknown key \"descriptor\" in limits, expected one of descriptors, "
                  "address_space, file_size, core (nearest: descriptors)"));
}

TEST(LoaderTest, ParametersKeepTheirTypeAloneAndAreTextInsideOne) {
  const Scenario scenario = loaded(kFull);
  const Drill& base = scenario.drills.front();
  EXPECT_THAT(base.processes[0].arguments, ElementsAre("--at=listener.read.body"));
  EXPECT_EQ(base.processes[1].environment.at("MODE"), "$4");
  EXPECT_EQ(base.steps[3].text, "c sends map, the first 4 of 47 bytes");
  EXPECT_EQ(base.steps[4].text, "wait listener.read.body in worker");
  const Drill& arm = scenario.drills[1];
  EXPECT_THAT(arm.processes[0].arguments, ElementsAre("--at=listener.read.header"));
  EXPECT_EQ(arm.steps[3].text, "c sends map, the first 2 of 47 bytes");
  EXPECT_EQ(arm.steps[4].text, "wait listener.read.header in worker");
}

TEST(LoaderTest, AnArmChangesWhatItNamesAndKeepsTheRest) {
  const Scenario scenario = loaded(kFull);
  const Drill& header = scenario.drills[1];
  EXPECT_EQ(header.full_name(), "stalled header / header");
  EXPECT_EQ(header.position.line, 26);
  EXPECT_EQ(header.deadline_ns, 10'000'000'000);
  EXPECT_EQ(header.not_under_reason, "heap");
  EXPECT_EQ(header.steps.size(), 5u);

  const Drill& fails = scenario.drills[2];
  EXPECT_EQ(fails.arm, "fails");
  EXPECT_EQ(fails.expect_fail, "known");
  EXPECT_EQ(fails.deadline_ns, 3'000'000'000);
  EXPECT_EQ(fails.events, 1024u);
  ASSERT_EQ(fails.processes.size(), 3u);
  EXPECT_EQ(fails.processes[1].name, "reader");
  EXPECT_EQ(fails.processes[1].role, "producer");
  EXPECT_TRUE(fails.processes[1].environment.empty()) << "a process is replaced whole";
  EXPECT_EQ(fails.processes[2].name, "third");
  EXPECT_EQ(fails.steps.size(), 3u);
}

TEST(LoaderTest, TheMatrixIsTheCrossProductAndTheFirstTurnsSlowest) {
  const Scenario scenario = loaded(kFull);
  std::vector<std::string> arms;
  for (const Drill& drill : scenario.drills) arms.push_back(drill.arm);
  EXPECT_THAT(
      arms, ElementsAre("", "header", "fails", "first=1, where=vmm.map", "first=1, where=vmm.unmap",
                        "first=3, where=vmm.map", "first=3, where=vmm.unmap"));
  EXPECT_EQ(scenario.drills[5].steps[3].text, "c sends map, the first 3 of 47 bytes");
  EXPECT_EQ(scenario.drills[6].steps[4].text, "wait vmm.unmap in worker");
}

TEST(LoaderTest, AProofBelongsToItsArm) {
  const Scenario scenario = loaded(kFull);
  ASSERT_EQ(scenario.drills[0].proofs.size(), 1u);
  const Proof& proof = scenario.drills[0].proofs[0];
  ASSERT_EQ(proof.skip.size(), 2u);
  EXPECT_EQ(to_string(proof.skip[0]), "listener.stop.cancel_reads@worker");
  EXPECT_EQ(to_string(proof.skip[1]), "listener.stop.drain");
  EXPECT_THAT(proof.fails, ElementsAre("reached", "no_hang"));
  EXPECT_THAT(proof.not_under, ElementsAre("tsan"));
  EXPECT_EQ(proof.reason, "slow");
  EXPECT_EQ(proof.position.line, 46);
  EXPECT_EQ(scenario.drills[1].proofs.size(), 1u);
  EXPECT_EQ(scenario.drills[2].proofs.size(), 0u);
}

TEST(LoaderTest, StepsKnowTheirPlaceAndTheirDeadline) {
  const Scenario scenario = loaded(kFull);
  const auto& steps = scenario.drills[0].steps;
  EXPECT_EQ(steps[3].position.file, "x.toml");
  EXPECT_EQ(steps[3].position.line, 22);
  EXPECT_EQ(steps[3].position.column, 3);
  EXPECT_EQ(steps[3].deadline_ns, 1'000'000'000);
  EXPECT_FALSE(steps[4].deadline_ns);
  EXPECT_EQ(steps[4].check_name(), "reached");
  EXPECT_EQ(steps[3].check_name(), "c sends map, the first 4 of 47 bytes");
}

TEST(LoaderTest, AllFaultsAreReportedInTheOrderOfTheirLines) {
  EXPECT_THAT(
      faults_of("name = \"x\"\n"
                "abuot = \"y\"\n"
                "about = \"z\"\n"
                "[processes]\n"
                "worker = {role = \"wroker\"}\n"
                "[drill]\n"
                "deadline = 3\n"
                "steps = [\n"
                "{start = \"worker\"},\n"
                "{wait = \"vmm.mpa\"},\n"
                "{release = \"park\"},\n"
                "]\n"
                "[[arm]]\n"
                "set = {}\n"),
      ElementsAre("2:1: unknown key \"abuot\" at the top of the file, expected one of name, about, "
                  "cases, params, processes, drill, arm, matrix, prove (nearest: about)",
                  "5:18: unknown role \"wroker\", expected one of producer, reader, worker "
                  "(nearest: worker)",
                  "7:12: deadline has no unit, expected a text such as \"3ms\" or \"3s\"",
                  "10:9: unknown point \"vmm.mpa\", expected one of 18 (nearest: vmm.map)",
                  "11:12: nothing is held as \"park\", expected a hold by that name before",
                  "13:1: missing key \"name\" in [[arm]], expected a name"));
}

TEST(LoaderTest, NothingIsSaidOfStepsBehindOneThatCouldNotBeUnderstood) {
  EXPECT_THAT(faults_of(started("{cal = \"shutdown\", as = \"stop\"},\n{returns = \"stop\"},")),
              ElementsAre("8:2: unknown step \"cal\", expected one of " +
                          std::to_string(language().words().size()) + " (nearest: call)"));
}

TEST(LoaderTest, ABrokenStepIsNotJudgedTwice) {
  EXPECT_THAT(faults_of(started("{call = \"shutdwn\", as = \"stop\"},\n{returns = \"stop\"},")),
              ElementsAre("8:9: unknown command \"shutdwn\", expected one of initialised, map, "
                          "shutdown (nearest: shutdown)"));
}

// Every prefix, and every byte replaced: a value or faults inside the file, never a crash.
TEST(LoaderTest, NoFileIsTooBrokenToBeRefused) {
  const std::string full = kFull;
  const Engine engine = test_engine();
  const auto judge = [&](const std::string& text) {
    const auto scenario = load_scenario("x.toml", text, engine, language());
    if (scenario) return true;
    EXPECT_THAT(scenario.error(), ::testing::Not(IsEmpty())) << text;
    for (const LoadError& error : scenario.error()) {
      EXPECT_GE(error.position.line, 1) << error.message;
      EXPECT_LE(error.position.line, 70) << error.message;
      EXPECT_GE(error.position.column, 1) << error.message;
      EXPECT_NE(error.message, "");
    }
    return false;
  };
  std::size_t good = 0;
  for (std::size_t size = 0; size <= full.size(); ++size) good += judge(full.substr(0, size));
  EXPECT_GE(good, 1u);
  EXPECT_LT(good, full.size() / 4);
  for (std::size_t at = 0; at < full.size(); ++at) {
    for (const char byte : {'"', '{', '$', '\0', '\xff', '9'}) {
      std::string text = full;
      text[at] = byte;
      judge(text);
    }
  }
}

class FindScenariosTest : public ::testing::Test {
 protected:
  FindScenariosTest() {
    char name[] = "/tmp/kvfind.XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~FindScenariosTest() override { std::filesystem::remove_all(root_); }

  std::string make(const std::string& name) {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path.string();
  }

  std::string root_;
};

TEST_F(FindScenariosTest, FindsFilesBelowFoldersSortedAndOnce) {
  const std::string b = make("b/b.toml"), a = make("a.toml"), deep = make("b/c/d.toml");
  const std::string other = make("other.txt");
  make("b/README.md");
  std::filesystem::create_directories(root_ + "/folder.toml");
  const auto found = find_scenarios({root_, b, other});
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_THAT(*found, ElementsAre(a, b, deep, other));
}

TEST_F(FindScenariosTest, SaysWhatIsMissing) {
  const auto absent = find_scenarios({root_ + "/absent"});
  ASSERT_FALSE(absent);
  EXPECT_EQ(to_string(absent.error()),
            root_ + "/absent: no such file or folder, expected a scenario or a folder with *.toml");
  const auto empty = find_scenarios({root_});
  ASSERT_FALSE(empty);
  EXPECT_EQ(to_string(empty.error()), root_ + ": no scenario below it, expected *.toml");
}

// A folder named twice is not an empty one.
TEST_F(FindScenariosTest, AFolderMayBeNamedTwice) {
  const std::string a = make("a.toml");
  const auto found = find_scenarios({root_, root_});
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_THAT(*found, ElementsAre(a));
}

}  // namespace
}  // namespace kv::drill
