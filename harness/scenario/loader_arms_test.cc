// Parameters, arms, matrix and proofs, said wrongly: one test for each kind of fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/scenario/scenario_test_support.h"

namespace kv::drill {
namespace {

class ArmsWithFaults : public ::testing::TestWithParam<BadInput> {};

TEST_P(ArmsWithFaults, AreRefusedWithTheirPlaceAndWhatWasExpected) {
  EXPECT_THAT(faults_of(GetParam().text), ::testing::ElementsAreArray(GetParam().faults));
}

// Parameters in line 3, a step in line 9, and what comes behind the drill, from line 11 on.
std::string with_params(const std::string& params, const std::string& step,
                        const std::string& rest = "") {
  return "name = \"x\"\nabout = \"y\"\n" + params +
         "\n[processes]\nworker = {role = \"worker\"}\n[drill]\nsteps = [\n"
         "{start = \"worker\"},\n" +
         step + "\n]\n" + rest;
}
std::string with_arms(const std::string& rest) {
  return with_params("params = {where = \"vmm.map\"}", "{wait = \"$where\"},", rest);
}
// A drill with the check "reached" and an arm "second"; the proof's keys, from line 15 on.
std::string proving(const std::string& keys) {
  return with_params(
      "params = {where = \"vmm.map\"}", "{id = \"reached\", wait = \"$where\"},",
      "[[arm]]\nname = \"second\"\nset = {where = \"vmm.unmap\"}\n[[prove]]\n" + keys);
}

const BadInput kParameter[] = {
    {"Unknown",
     with_params("params = {first = 4}", R"({wait = "$frist"},)"),
     {R"(9:9: unknown parameter "$frist", expected first)"}},
    {"UnknownInsideAText",
     with_params(R"(params = {first = "a"})", R"({logged = "x $frist $first"},)"),
     {R"(9:11: unknown parameter "$frist", expected first)"}},
    {"NeverUsed",
     with_params("params = {first = 4, second = 2}", R"({wait = "vmm.map", hit = "$first"},)"),
     {R"(3:31: parameter second is never used, expected "$second" in a step)"}},
    {"ADollarAlone",
     with_params(R"(params = {first = "a"})", R"({logged = "$first costs 3 $"},)"),
     {R"(9:11: "$" without a parameter's name, expected "$name", or "$$" for a dollar)"}},
    {"AListInsideAText",
     with_params("params = {first = [1]}", R"({logged = "x $first"},)"),
     {"9:11: parameter first is a list and cannot be part of a text, expected a text, a number, "
      "true or false"}},
    {"ABadName",
     with_params(R"(params = {"a-b" = 1})", R"({logged = "x"},)"),
     {R"(3:11: "a-b" is no name of a parameter, expected letters, digits and "_")"}},
    {"AWrongValue",
     with_params(R"(params = {where = "listener.raed.body"})", R"({wait = "$where"},)"),
     {R"(3:19: unknown point "listener.raed.body")"
      ", expected one of 18 (nearest: listener.read.body) [as parameter where]"}},
    {"AWrongType",
     with_params(R"(params = {hit = "2"})", R"({wait = "vmm.map", hit = "$hit"},)"),
     {R"(3:17: hit = "2", expected a number [as parameter hit])"}},
    {"ParamsThatAreNoTable",
     with_params("params = 3", R"({wait = "vmm.map"},)"),
     {"3:10: params = 3, expected a table"}},
};
INSTANTIATE_TEST_SUITE_P(Parameter, ArmsWithFaults, ::testing::ValuesIn(kParameter), name_of);

const BadInput kArm[] = {
    {"WithoutAName",
     with_arms("[[arm]]\n"
               "set = {where = \"vmm.unmap\"}\n"),
     {R"(11:1: missing key "name" in [[arm]], expected a name)"}},
    {"NameGivenTwice",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"
               "set = {where = \"vmm.unmap\"}\n"
               "[[arm]]\n"
               "name = \"a\"\n"
               "set = {where = \"vmm.create\"}\n"),
     {R"(15:8: arm "a" is there already, in line 11, expected another name)"}},
    {"SetsAnUnknownParameter",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"
               "set = {were = \"vmm.unmap\"}\n"),
     {R"(13:8: unknown parameter "were", expected where)"}},
    {"SetsAWrongValue",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"
               "set = {where = \"vmm.unmpa\"}\n"),
     {R"(13:16: unknown point "vmm.unmpa")"
      R"(, expected one of 18 (nearest: vmm.unmap) [as parameter where] [in arm "a"])"}},
    {"UnknownKey",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"
               "sets = {where = \"vmm.unmap\"}\n"),
     {R"(13:1: unknown key "sets" in [[arm]])"
      ", expected one of name, set, processes, steps, clock, deadline, events, card, small_root, "
      "waive, "
      "expect, not_under, reason (nearest: set)"}},
    {"ChangesNothing",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"),
     {"11:1: the arm changes nothing, expected set, steps, processes or another key of [drill]"}},
    {"SetsWhatItsStepsDoNotUse",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"
               "set = {where = \"vmm.unmap\"}\n"
               "steps = [{start = \"worker\"}]\n"),
     {R"(13:8: parameter where is never used in arm "a", expected "$where" in its steps)"}},
    {"FaultsOfItsOwnSteps",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"
               "steps = [\n"
               "{start = \"worker\"},\n"
               "{release = \"park\"},\n"
               "]\n"),
     {R"(15:12: nothing is held as "park")"
      R"(, expected a hold by that name before [in arm "a"])"}},
    {"IsNoTable",
     with_params(R"(params = {where = "vmm.map"}
arm = [3])",
                 R"({wait = "$where"},)"),
     {"4:8: an arm is 3, expected a table"}},
    {"ReplacesAProcessBadly",
     with_arms("[[arm]]\n"
               "name = \"a\"\n"
               "processes = {worker = {role = \"raeder\"}}\n"),
     {R"(13:31: unknown role "raeder")"
      R"(, expected one of producer, reader, worker (nearest: reader) [in arm "a"])"}},
};
INSTANTIATE_TEST_SUITE_P(Arm, ArmsWithFaults, ::testing::ValuesIn(kArm), name_of);

const BadInput kMatrix[] = {
    {"OfAnUnknownParameter",
     with_arms("[matrix]\n"
               "were = [\"vmm.unmap\"]\n"),
     {R"(12:1: unknown parameter "were", expected where)"}},
    {"WithoutValues",
     with_arms("[matrix]\n"
               "where = []\n"),
     {"12:9: where has no values, expected at least one"}},
    {"WithoutParameters",
     with_arms("[matrix]\n"),
     {"11:1: [matrix] is empty, expected parameter = [values]"}},
    {"OfAValueThatIsNoList",
     with_arms("[matrix]\n"
               "where = \"vmm.unmap\"\n"),
     {R"(12:9: where = "vmm.unmap", expected a list)"}},
    {"WithAWrongValue",
     with_arms("[matrix]\n"
               "where = [\"vmm.unmap\", \"vmm.maap\"]\n"),
     {R"(12:23: unknown point "vmm.maap")"
      ", expected one of 18 (nearest: vmm.map) [as parameter where] [in arm"
      R"( "where=vmm.maap"])"}},
    {"WithTheSameValueTwice",
     with_arms("[matrix]\n"
               "where = [\"vmm.unmap\", \"vmm.unmap\"]\n"),
     {R"(12:23: arm "where=vmm.unmap" is there already, in line 12, expected another name)"}},
    {"TooLarge",
     with_params("params = {a = 1, b = 1}", R"({wait = "vmm.map", hit = "$a", key = "$b"},)",
                 "[matrix]\n"
                 "a = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, "
                 "22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39]\n"
                 "b = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, "
                 "22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39]\n"),
     {"13:5: the matrix makes more than 1000 arms, expected fewer"}},
};
INSTANTIATE_TEST_SUITE_P(Matrix, ArmsWithFaults, ::testing::ValuesIn(kMatrix), name_of);

const BadInput kProof[] = {
    {"OfAnUnknownStep",
     proving("skip = [\"listener.stop.cancel_raeds\"]\n"
             "fails = [\"reached\"]\n"),
     {R"(15:9: unknown step "listener.stop.cancel_raeds")"
      ", expected one of listener.stop.cancel_reads, listener.stop.drain, runtime.exit_hook "
      "(nearest: listener.stop.cancel_reads)"}},
    {"OfAFault",
     proving("skip = [\"vmm.map\"]\n"
             "fails = [\"reached\"]\n"),
     {R"(15:9: "vmm.map" is a fault)"
      ", expected one of listener.stop.cancel_reads, listener.stop.drain, runtime.exit_hook"}},
    {"OfNothing",
     proving("skip = []\n"
             "fails = [\"reached\"]\n"),
     {"15:8: skip is empty, expected at least one step"}},
    {"WithoutSkip",
     proving("fails = [\"reached\"]\n"),
     {R"(14:1: missing key "skip" in [[prove]], expected a list of steps to leave out)"}},
    {"WithoutFails",
     proving("skip = [\"runtime.exit_hook\"]\n"),
     {R"(14:1: missing key "fails" in [[prove]])"
      ", expected a list of checks: ids of steps, or checks that every drill has"}},
    {"ThatNothingFails",
     proving("skip = [\"runtime.exit_hook\"]\n"
             "fails = []\n"),
     {"16:9: fails is empty, expected at least one check"}},
    {"OfAnUnknownCheck",
     proving("skip = [\"runtime.exit_hook\"]\n"
             "fails = [\"raeched\"]\n"),
     {R"(16:10: unknown check "raeched")"
      ", expected one of reached, no_dispatch_after_stop, nothing_left, no_crash, no_hang, "
      "prompt_exit, clean_logs (nearest: reached)"}},
    {"OfACheckTwice",
     proving("skip = [\"runtime.exit_hook\"]\n"
             "fails = [\"reached\", \"reached\"]\n"),
     {R"(16:21: "reached" fails twice, expected it once)"}},
    {"OfAStepTwice",
     proving("skip = [\"runtime.exit_hook\", \"runtime.exit_hook\"]\n"
             "fails = [\"reached\"]\n"),
     {R"(15:30: "runtime.exit_hook" is skipped twice, expected it once)"}},
    {"InAnUnknownArm",
     proving("arm = \"secnd\"\n"
             "skip = [\"runtime.exit_hook\"]\n"
             "fails = [\"reached\"]\n"),
     {R"(15:7: unknown arm "secnd", expected second)"}},
    {"InAnUnknownProcess",
     proving("skip = [\"runtime.exit_hook@wroker\"]\n"
             "fails = [\"reached\"]\n"),
     {R"(15:9: unknown process "wroker", expected worker)"}},
    {"WithAnUnknownKey",
     proving("skip = [\"runtime.exit_hook\"]\n"
             "fail = [\"reached\"]\n"),
     {R"(14:1: missing key "fails" in [[prove]])"
      ", expected a list of checks: ids of steps, or checks that every drill has",
      R"(16:1: unknown key "fail" in [[prove]])"
      ", expected one of arm, skip, fails, not_under, reason (nearest: fails)"}},
    {"GivenTwice",
     proving("skip = [\"runtime.exit_hook\"]\n"
             "fails = [\"reached\"]\n"
             "[[prove]]\n"
             "skip = [\"runtime.exit_hook\"]\n"
             "fails = [\"no_hang\"]\n"),
     {"17:1: the proof in line 14 skips the same, expected one of them"}},
    {"OfAWaivedCheck",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "waive = [{check = \"no_hang\", reason = \"r\"}]\n"
     "steps = [{start = \"worker\"}]\n"
     "[[prove]]\n"
     "skip = [\"runtime.exit_hook\"]\n"
     "fails = [\"no_hang\"]\n",
     {"10:10: no_hang is waived in this drill and cannot fail, expected another check"}},
    {"OfADrillThatFails",
     "name = \"x\"\n"
     "about = \"y\"\n"
     "[processes]\n"
     "worker = {role = \"worker\"}\n"
     "[drill]\n"
     "expect = \"fail\"\n"
     "reason = \"r\"\n"
     "steps = [{start = \"worker\"}]\n"
     "[[prove]]\n"
     "skip = [\"runtime.exit_hook\"]\n"
     "fails = [\"no_hang\"]\n",
     {"9:1: the drill is expected to fail and can prove nothing, expected a drill that passes"}},
};
INSTANTIATE_TEST_SUITE_P(Proof, ArmsWithFaults, ::testing::ValuesIn(kProof), name_of);

}  // namespace
}  // namespace kv::drill
