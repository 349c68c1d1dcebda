// kvcore's points through the table of the contract. That the two agree in layout is checked when
// glue.cc is compiled; here, that a call arrives whole.
#include "fakes/worker/glue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kv::worker {
namespace {

std::vector<std::string>& calls() {
  static std::vector<std::string> all;
  return all;
}

void record(const char* what, const kvdrill_site* site, std::int64_t key, std::int64_t value = 0) {
  calls().push_back(std::string(what) + " " + site->name + " " + std::to_string(site->kind) + " " +
                    std::to_string(key) + " " + std::to_string(value));
}

constexpr kvdrill_hooks kHooks{
    KVDRILL_CONTRACT_VERSION,
    [](kvdrill_site* site, std::int64_t key) { record("point", site, key); },
    [](kvdrill_site* site, std::int64_t key) {
      record("fault", site, key);
      return std::int32_t{17};
    },
    [](kvdrill_site* site, std::int64_t key) {
      record("step", site, key);
      return std::int32_t{0};
    },
    [](kvdrill_site* site, std::int64_t key, std::int64_t result) {
      record("done", site, key, result);
    },
    [](kvdrill_site* site, std::int64_t key, std::int64_t value, const char* text) {
      record(text, site, key, value);
    },
};

TEST(GlueTest, EveryKindOfCallArrivesWhole) {
#if defined(KV_NO_HOOKS)
  GTEST_SKIP() << "points are compiled out";
#endif
  install(&kHooks);
  point<"glue.point">(-1);
  EXPECT_EQ(fault<"glue.fault">(1LL << 40), 17);
  EXPECT_FALSE(step<"glue.step">(3));
  fault_done<"glue.fault">(4, -5);
  note<"glue.note">(6, 7, "text");
  install(nullptr);
  point<"glue.point">(8);
  EXPECT_EQ(calls(),
            (std::vector<std::string>{"point glue.point 0 -1 0",
                                      "fault glue.fault 1 1099511627776 0", "step glue.step 2 3 0",
                                      "done glue.fault 1 4 -5", "text glue.note 3 6 7"}));
}

TEST(GlueTest, TheListHasEverySiteOfTheProgram) {
#if defined(KV_NO_HOOKS)
  GTEST_SKIP() << "points are compiled out";
#endif
  int found = 0;
  for (const kvdrill_site* site = contract_sites(); site != nullptr; site = site->next) {
    found += std::string(site->name).starts_with("glue.") ? 1 : 0;
  }
  EXPECT_EQ(found, 4);
}

}  // namespace
}  // namespace kv::worker
