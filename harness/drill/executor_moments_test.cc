#include "harness/drill/executor_moments.h"

#include <gtest/gtest.h>

#include <string_view>

namespace kv::drill {
namespace {

// Two processes, "worker" (index 1, threads "listener" and "stop") and "reader" (index 2).
class MomentsTest : public ::testing::Test {
 protected:
  MomentsTest() {
    std::vector<ProcessInfo> processes(3);
    processes[1] = {"worker", 10, false, true, false, {{10, "listener"}, {11, "stop"}}};
    processes[2] = {"reader", 20, false, true, false, {{20, "main"}}};
    moments_.set_processes(processes);
  }
  void add(EventKind kind, std::string_view name, std::int64_t key, std::int64_t value,
           std::uint16_t process = 1, std::uint16_t thread = 0) {
    Event event;
    event.sequence = moments_.events().size();
    event.kind = kind;
    event.name = name;
    event.key = key;
    event.value = value;
    event.process = process;
    event.thread = thread;
    moments_.add(event);
  }
  std::uint64_t count(const Address& address) const { return moments_.count(address); }

  Moments moments_;
};

TEST_F(MomentsTest, EveryPartOfAnAddressNarrowsIt) {
  add(EventKind::kPoint, "vmm.map", 0, 1);
  add(EventKind::kPoint, "vmm.map", 4096, 2);
  add(EventKind::kPoint, "vmm.map", 0, 1, 1, 1);
  add(EventKind::kPoint, "vmm.map", 0, 1, 2);
  add(EventKind::kPoint, "vmm.unmap", 0, 1);
  EXPECT_EQ(count({"vmm.map", {}, {}, "", ""}), 4u);
  EXPECT_EQ(count({"vmm.map", 4096, {}, "", ""}), 1u);
  EXPECT_EQ(count({"vmm.map", {}, 2, "", ""}), 1u);
  EXPECT_EQ(count({"vmm.map", {}, {}, "worker", ""}), 3u);
  EXPECT_EQ(count({"vmm.map", {}, {}, "worker", "stop"}), 1u);
  EXPECT_EQ(count({"vmm.map", {}, {}, "", "main"}), 1u);
  EXPECT_EQ(count({"vmm.map", 4096, 1, "", ""}), 0u);
  EXPECT_EQ(count({"vmm", {}, {}, "", ""}), 0u);
}

TEST_F(MomentsTest, TheEndOfAFaultIsAnotherMomentThanItsBeginning) {
  add(EventKind::kPoint, "vmm.map", 0, 1);
  EXPECT_EQ(moments_.first({"vmm.map.done", {}, {}, "", ""}), nullptr);
  add(EventKind::kDone, "vmm.map", 0, 2);
  ASSERT_NE(moments_.first({"vmm.map.done", {}, {}, "", ""}), nullptr);
  EXPECT_EQ(moments_.first({"vmm.map.done", {}, {}, "", ""})->sequence, 1u);
  EXPECT_EQ(count({"vmm.map", {}, {}, "", ""}), 1u);
}

TEST_F(MomentsTest, HitsOfNotesAreCountedPerThread) {
  add(EventKind::kNote, "listener.dispatch", 1, 0);
  add(EventKind::kNote, "listener.dispatch", 1, 0, 1, 1);
  add(EventKind::kNote, "listener.dispatch", 1, 0);
  const Event* second = moments_.first({"listener.dispatch", {}, 2, "", ""});
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->sequence, 2u);
  EXPECT_EQ(moments_.first({"listener.dispatch", {}, 3, "", ""}), nullptr);
}

TEST_F(MomentsTest, OtherKindsAndTornEventsAreNoMoments) {
  add(EventKind::kActed, "vmm.map", 0, 1);
  add(EventKind::kCall, "vmm.map", 0, 1);
  Event torn;
  torn.torn = true;
  torn.name = "vmm.map";
  moments_.add(torn);
  EXPECT_EQ(count({"vmm.map", {}, {}, "", ""}), 0u);
  EXPECT_EQ(moments_.events().size(), 3u);
}

}  // namespace
}  // namespace kv::drill
