#include "harness/verdict/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kv::drill {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<ProcessInfo> processes() {
  std::vector<ProcessInfo> all(2);
  all[1] = {"worker", 10, false, true, false, {{10, "listener"}, {11, ""}}};
  return all;
}

Event event(EventKind kind, std::string_view name, std::int64_t key, std::int64_t value,
            std::string_view text = {}) {
  Event made;
  made.sequence = 7;
  made.time_ns = 3'500'000;
  made.kind = kind;
  made.process = kind == EventKind::kSupervisor ? 0 : 1;
  made.name = name;
  made.key = key;
  made.value = value;
  made.text = text;
  return made;
}

TEST(TraceTest, ALineSaysWhenWhoAndWhat) {
  const auto text =
      trace_text({event(EventKind::kPoint, "vmm.map", 4096, 2)}, processes(), 1'000'000);
  EXPECT_THAT(text, HasSubstr("2.500 ms"));
  EXPECT_THAT(text, HasSubstr("worker/listener"));
  EXPECT_THAT(text, HasSubstr("point"));
  EXPECT_THAT(text, HasSubstr("vmm.map[4096]#2"));
}

TEST(TraceTest, EveryEventIsOneLineWhateverItsText) {
  auto torn = event(EventKind::kNote, "x", 0, 0);
  torn.torn = true;
  const auto text = trace_text({event(EventKind::kCrash, "", 0, 11, "a+0x1 f\nb+0x2 g"), torn,
                                event(EventKind::kSupervisor, "step", 1, 0, "start worker")},
                               processes(), 0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("a+0x1 f|b+0x2 g"));
  EXPECT_THAT(text, HasSubstr("torn"));
  EXPECT_THAT(text, HasSubstr("drill"));
}

TEST(TraceTest, ThreadsWithoutALabelAndUnknownProcessesHaveANameToo) {
  auto one = event(EventKind::kPoint, "x", 0, 1);
  one.thread = 1;
  EXPECT_EQ(who(one, processes()), "worker/thread 1");
  one.thread = 9;
  EXPECT_EQ(who(one, processes()), "worker");
  one.process = 9;
  EXPECT_EQ(who(one, processes()), "process 9");
}

TEST(PlanTest, TheFirstLineIsTheCommandThatRepeatsTheRun) {
  Drill drill;
  drill.scenario = "stalled header";
  drill.arm = "silent";
  drill.processes.resize(1);
  drill.processes[0].name = "worker";
  drill.processes[0].role = "worker";
  Step inner;
  inner.text = "wait x";
  Step outer;
  outer.text = "repeat 3";
  outer.id = "three times";
  outer.body = {inner};
  drill.steps = {outer};
  Address skipped;
  skipped.site = "listener.stop.unlink";
  const auto text = plan_text(drill, "kvdrill run a.toml", {skipped});
  EXPECT_THAT(text, StartsWith("kvdrill run a.toml\n"));
  EXPECT_THAT(text, HasSubstr("stalled header / silent"));
  EXPECT_THAT(text, HasSubstr("without the step listener.stop.unlink"));
  EXPECT_THAT(text, HasSubstr("  1. repeat 3   ('three times')"));
  EXPECT_THAT(text, HasSubstr("      1. wait x"));
}

}  // namespace
}  // namespace kv::drill
