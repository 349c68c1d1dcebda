#include "kvcore/hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fakes/doubles/test_hooks.h"

namespace kv {
namespace {

using ::testing::ElementsAre;

class Hooks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  }
};

void reach_point(std::int64_t key) {
  point<"hook_test.point">(key);
}
// A second place with the same name: the same moment.
void reach_point_elsewhere(std::int64_t key) {
  point<"hook_test.point">(key);
}

std::vector<const Site*> sites_named(const std::string& name) {
  std::vector<const Site*> found;
  for (const Site* site = all_sites(); site != nullptr; site = site->next) {
    if (site->name == name) found.push_back(site);
  }
  return found;
}

TEST_F(Hooks, EverySiteIsListedBeforeItIsReachedOnceAndWithItsKind) {
  reach_point_elsewhere(0);
  const struct {
    const char* name;
    SiteKind kind;
  } kExpected[] = {{"hook_test.point", SiteKind::kPoint},
                   {"hook_test.fault", SiteKind::kFault},
                   {"hook_test.step", SiteKind::kStep},
                   {"hook_test.note", SiteKind::kNote}};
  for (const auto& expected : kExpected) {
    const auto found = sites_named(expected.name);
    ASSERT_EQ(found.size(), 1u) << expected.name;
    EXPECT_EQ(found[0]->kind, expected.kind) << expected.name;
    EXPECT_EQ(found[0]->harness_id, 0u) << expected.name;
  }
}

TEST_F(Hooks, WithoutATableNothingHappensAndEveryProtectionIsCarriedOut) {
  ASSERT_EQ(hook_detail::armed(), nullptr);
  reach_point(1);
  EXPECT_EQ(fault<"hook_test.fault">(1), 0);
  fault_done<"hook_test.fault">(1, 2);
  EXPECT_TRUE(step<"hook_test.step">(1));
  step_done<"hook_test.step">(1, 2);
  note<"hook_test.note">(1, 2, "text");
}

TEST_F(Hooks, ATableIsCalledWithSiteKeyResultAndText) {
  TestHooks hooks;
  reach_point(-1);
  reach_point_elsewhere(2);
  EXPECT_EQ(fault<"hook_test.fault">(3), 0);
  fault_done<"hook_test.fault">(3, 4);
  EXPECT_TRUE(step<"hook_test.step">(5));
  step_done<"hook_test.step">(5, 6);
  note<"hook_test.note">(7, 8, "nine");
  note<"hook_test.note">(10);
  using Seen = TestHooks::Seen;
  EXPECT_THAT(hooks.seen(),
              ElementsAre(Seen{"hook_test.point", -1, 0, ""}, Seen{"hook_test.point", 2, 0, ""},
                          Seen{"hook_test.fault", 3, 0, ""}, Seen{"hook_test.fault.done", 3, 4, ""},
                          Seen{"hook_test.step", 5, 0, ""}, Seen{"hook_test.step.done", 5, 6, ""},
                          Seen{"hook_test.note", 7, 8, "nine"}, Seen{"hook_test.note", 10, 0, ""}));
}

TEST_F(Hooks, AnOrderedFaultGivesItsCodeAndASkippedStepSaysSo) {
  TestHooks hooks;
  hooks.fail("hook_test.fault", 700);
  hooks.skip("hook_test.step");
  EXPECT_EQ(fault<"hook_test.fault">(), 700);
  EXPECT_FALSE(step<"hook_test.step">());
  hooks.fail("hook_test.fault", 0);
  EXPECT_EQ(fault<"hook_test.fault">(), 0);
}

TEST_F(Hooks, AnAttemptMakesTheCallUnlessItIsToldItsAnswer) {
  int made = 0;
  const auto call = [&made] { return ++made * 10; };
  EXPECT_EQ(attempt<"hook_test.fault">(1, call), 10);
  TestHooks hooks;
  EXPECT_EQ(attempt<"hook_test.fault">(2, call), 20);
  hooks.fail("hook_test.fault", 700);
  EXPECT_EQ(attempt<"hook_test.fault">(3, call), 700);
  hooks.fail("hook_test.fault", kPretend);
  EXPECT_EQ(attempt<"hook_test.fault">(4, call), 0);
  EXPECT_EQ(made, 2);
  using Seen = TestHooks::Seen;
  EXPECT_THAT(
      hooks.seen(),
      ElementsAre(Seen{"hook_test.fault", 2, 0, ""}, Seen{"hook_test.fault.done", 2, 20, ""},
                  Seen{"hook_test.fault", 3, 0, ""}, Seen{"hook_test.fault.done", 3, 700, ""},
                  Seen{"hook_test.fault", 4, 0, ""}, Seen{"hook_test.fault.done", 4, 0, ""}));
}

TEST_F(Hooks, TakenAwayTheTableIsNotCalledAnyMore) {
  { const TestHooks hooks; }
  ASSERT_EQ(hook_detail::armed(), nullptr);
  EXPECT_TRUE(step<"hook_test.step">());
}

}  // namespace
}  // namespace kv
