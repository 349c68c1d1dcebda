// Pages on several workers: real listeners and allocators over models of device memory, in one
// process; and workers that lose replies or die, each step by step.
#include "kvcore/cache/remote_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/cache/page_allocator.h"
#include "kvcore/listener/listener.h"
#include "kvcore/listener/listener_testing.h"
#include "kvcore/runtime/service.h"

namespace kv {
namespace {

using namespace std::chrono_literals;  // NOLINT: units
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Pages = std::vector<std::int64_t>;

constexpr std::int64_t kPage = ModelVmm::kPage;
constexpr auto kLimit = 10s;

// What a worker holds: one layer of 8 pages, one buffer, so that a page is a handle.
struct Memory {
  Memory() {
    KvShape shape;
    shape.buffers = 1;
    shape.page_bytes = kPage;
    shape.tensor_bytes = 8 * kPage;
    EXPECT_TRUE(allocator->create_tensors(0, shape).ok());
  }
  Message serve(const Message& request) {
    const std::lock_guard<std::mutex> lock(mutex);
    commands.push_back(text_field(request, "cmd").value_or(""));
    return serve_request(*allocator, request);
  }
  std::size_t pages() const { return vmm.mappings().size(); }
  // Driver calls of these names fail; none: all is well again.
  void fail(const std::set<std::string>& calls, int code) {
    const std::lock_guard<std::mutex> lock(mutex);
    vmm.fault = [calls, code](const std::string& name, int) {
      return calls.contains(name) ? code : 0;
    };
  }
  void heal() { fail({}, 0); }
  std::vector<std::string> heard() {
    const std::lock_guard<std::mutex> lock(mutex);
    return commands;
  }

  ModelVmm vmm;
  std::unique_ptr<KvAllocator> allocator = make_kv_allocator(vmm, {});
  std::mutex mutex;
  std::vector<std::string> commands;
};

class Worker {
 public:
  virtual ~Worker() = default;
  Memory memory;
  Peer peer;
};

class GoodWorker final : public Worker {
 public:
  GoodWorker(const testing::TempDir& root, Clock& clock, int rank, int stage) {
    peer = {rank, stage,
            root.path() + "/w" + std::to_string(rank) + "." + std::to_string(stage) + ".sock"};
    ListenerOptions options;
    options.socket_root = root.path();
    options.socket_path = peer.socket_path;
    auto started = Listener::start(
        options,
        [this](const Message& request) -> Result<Message> { return memory.serve(request); }, clock,
        {});
    EXPECT_TRUE(started.ok()) << started.status().to_string();
    listener = std::move(*started);
  }
  std::unique_ptr<Listener> listener;
};

// Answers one request after the other as its script says, and from the script's end on well.
class BadWorker final : public Worker {
 public:
  enum class Fate {
    kAnswer,
    kLose,     // carried out, and the connection closed
    kDie,      // the same, and nobody listens any more
    kIgnore,   // not carried out, the connection closed
    kSilence,  // not carried out, and the limit passes
  };
  BadWorker(const testing::TempDir& root, ManualClock& clock, int rank, std::vector<Fate> script)
      : clock_(clock), script_(std::move(script)) {
    peer = {rank, 0, root.path() + "/bad" + std::to_string(rank) + ".sock"};
    socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ::unlink(peer.socket_path.c_str());
    std::memcpy(address.sun_path, peer.socket_path.data(), peer.socket_path.size());
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_.get(), 16), 0);
    thread_ = std::thread([this] { work(); });
  }
  ~BadWorker() override {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  void work() {
    for (std::size_t i = 0;; ++i) {
      const UniqueFd fd(::accept(socket_.get(), nullptr, nullptr));
      if (!fd) return;
      const Fate fate = i < script_.size() ? script_[i] : Fate::kAnswer;
      FrameReader reader(1u << 20);
      while (!reader.complete()) {
        const auto part = reader.want().value();
        const ssize_t n = ::recv(fd.get(), part.data, part.size, 0);
        if (n <= 0 || !reader.got(static_cast<std::size_t>(n)).ok()) return;
      }
      const Message request = decode_pickle(reader.body()).value_or(Message{});
      Message reply;
      if (fate != Fate::kIgnore && fate != Fate::kSilence) reply = memory.serve(request);
      if (fate == Fate::kDie) ::shutdown(socket_.get(), SHUT_RDWR);
      if (fate == Fate::kSilence) {
        clock_.set(clock_.now() + kLimit);
        char byte = 0;
        (void)::recv(fd.get(), &byte, 1, 0);  // until the client gives up
      }
      if (fate != Fate::kAnswer) continue;
      const std::string frame = encode_frame(encode_pickle(reply).value()).value();
      EXPECT_EQ(::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(frame.size()));
    }
  }

  ManualClock& clock_;
  const std::vector<Fate> script_;
  UniqueFd socket_;
  std::thread thread_;
};
using Fate = BadWorker::Fate;

class RemotePagesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& worker : workers_) EXPECT_THAT(worker->memory.vmm.broken(), IsEmpty());
  }
  GoodWorker& good(int rank, int stage = 0) {
    workers_.push_back(std::make_unique<GoodWorker>(root_, clock_, rank, stage));
    return static_cast<GoodWorker&>(*workers_.back());
  }
  Worker& bad(int rank, std::vector<Fate> script) {
    workers_.push_back(std::make_unique<BadWorker>(root_, clock_, rank, std::move(script)));
    return *workers_.back();
  }
  RemotePages& pages() {
    if (!pages_) {
      std::vector<Peer> peers;
      for (const auto& worker : workers_) peers.push_back(worker->peer);
      RemoteOptions options;
      options.page_bytes = kPage;
      options.name = "engine";
      options.client.timeout = kLimit;
      pages_ = std::make_unique<RemotePages>(clock_, std::move(peers), options);
    }
    return *pages_;
  }
  // Everything there is, on all workers.
  std::vector<std::size_t> mapped() const {
    std::vector<std::size_t> pages;
    for (const auto& worker : workers_) pages.push_back(worker->memory.pages());
    return pages;
  }
  std::uint64_t pending() const {
    std::uint64_t all = 0;
    for (const auto& worker : workers_) all += worker->memory.allocator->counts().pending_unmaps;
    return all;
  }

  const testing::TempDir root_;
  ManualClock clock_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<RemotePages> pages_;
};

void expect_ended(const PageBackend::Done& done, std::size_t pages, PageMap state, Code code) {
  EXPECT_EQ(done.status.code(), code) << done.status.to_string();
  EXPECT_THAT(done.states, AllOf(SizeIs(pages), Each(state)));
}

TEST_F(RemotePagesTest, MapsAndUnmapsOnAllRanksAndStages) {
  for (const int stage : {0, 1}) {
    for (const int rank : {0, 1}) good(rank, stage);
  }
  ASSERT_TRUE(pages().map({0, 3}).status.ok());
  EXPECT_THAT(mapped(), ElementsAre(2, 2, 2, 2));
  ASSERT_TRUE(pages().unmap({3}).status.ok());
  EXPECT_THAT(mapped(), ElementsAre(1, 1, 1, 1));
  ASSERT_TRUE(pages().unmap({0}).status.ok());
  EXPECT_THAT(mapped(), Each(0));
}

// ---- map

TEST_F(RemotePagesTest, AMapThatOneWorkerCannotDoIsUndoneOnTheOthers) {
  good(0);
  good(1);
  Memory& failing = good(1, 1).memory;
  ASSERT_TRUE(pages().map({7}).status.ok());
  failing.fail({"create"}, 2);
  const auto done = pages().map({0, 1});
  expect_ended(done, 2, PageMap::kUnmapped, Code::kOutOfMemory);
  EXPECT_THAT(done.status.to_string(), HasSubstr("rank 1 stage 1 map_to_kv_tensors"));
  EXPECT_THAT(done.status.to_string(), HasSubstr("create: out_of_memory (2)")) << "its own words";
  EXPECT_THAT(mapped(), Each(1)) << "the page from before stays";
  failing.fail({"map"}, 999);
  expect_ended(pages().map({0, 1}), 2, PageMap::kUnmapped, Code::kDriver);
  failing.heal();
  EXPECT_TRUE(pages().map({0, 1}).status.ok());
  EXPECT_THAT(mapped(), Each(3));
}

TEST_F(RemotePagesTest, UndoingAMapLeavesWhatAWorkerHadBefore) {
  Memory& first = good(0).memory;
  Memory& failing = good(1).memory;
  ASSERT_TRUE(first.allocator->map(0, {2 * kPage}).ok());
  failing.fail({"create"}, 2);
  expect_ended(pages().map({2, 3}), 2, PageMap::kUnmapped, Code::kOutOfMemory);
  EXPECT_THAT(mapped(), ElementsAre(1, 0));
  failing.heal();
  EXPECT_TRUE(pages().map({2, 3}).status.ok()) << "it is adopted";
  EXPECT_THAT(mapped(), ElementsAre(2, 2));
}

TEST_F(RemotePagesTest, WhatCannotBeUndoneEverywhereIsSetAside) {
  Memory& stuck = good(0).memory;
  Memory& failing = good(1).memory;
  good(2);
  stuck.fail({"unmap"}, 999);
  failing.fail({"create"}, 2);
  const auto done = pages().map({0, 1});
  expect_ended(done, 2, PageMap::kQuarantined, Code::kQuarantined);
  EXPECT_THAT(done.status.to_string(), HasSubstr("rank 1 stage 0")) << "the first cause";
  EXPECT_THAT(mapped(), ElementsAre(2, 0, 0));
  stuck.heal();
  failing.heal();
  ASSERT_TRUE(pages().map({5}).status.ok());
  ASSERT_TRUE(pages().unmap({5}).status.ok()) << "the undo that hangs is settled first";
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RemotePagesTest, AWorkerThatSetPagesAsideTakesTheBatchWithIt) {
  good(0);
  Memory& failing = good(1).memory;
  failing.fail({"set_access", "unmap"}, 999);
  expect_ended(pages().map({0}), 1, PageMap::kQuarantined, Code::kQuarantined);
  EXPECT_THAT(mapped(), ElementsAre(0, 1));
}

TEST_F(RemotePagesTest, ALostReplyIsAskedForAgain) {
  good(0);
  Memory& lossy = bad(1, {Fate::kLose}).memory;
  ASSERT_TRUE(pages().map({0, 1}).status.ok());
  EXPECT_THAT(mapped(), ElementsAre(2, 2));
  EXPECT_THAT(lossy.heard(), ElementsAre("map_to_kv_tensors", "map_to_kv_tensors"));
}

TEST_F(RemotePagesTest, WhatALostReplyMappedIsUndoneToo) {
  bad(0, {Fate::kLose});
  good(1).memory.fail({"create"}, 2);
  expect_ended(pages().map({0, 1}), 2, PageMap::kUnmapped, Code::kOutOfMemory);
  EXPECT_THAT(mapped(), ElementsAre(0, 0));
}

TEST_F(RemotePagesTest, AWorkerThatNeverAnswersLeavesPagesThatNobodyKnows) {
  const std::vector<std::vector<Fate>> scripts{
      {Fate::kLose, Fate::kIgnore, Fate::kIgnore, Fate::kIgnore}, {Fate::kDie}, {Fate::kSilence}};
  for (const auto& script : scripts) {
    workers_.clear();
    pages_.reset();
    good(0);
    bad(1, script);
    const auto done = pages().map({0, 1});
    expect_ended(done, 2, PageMap::kQuarantined, Code::kQuarantined);
    EXPECT_THAT(done.status.to_string(), HasSubstr(" stage 0 map_to_kv_tensors"));
    EXPECT_EQ(workers_[0]->memory.pages(), 0u) << "the others have undone it";
  }
}

TEST_F(RemotePagesTest, WhoeverConfirmsTheUndoIsKnownAgain) {
  good(0);
  bad(1, {Fate::kLose, Fate::kIgnore});
  const auto done = pages().map({0, 1});
  expect_ended(done, 2, PageMap::kUnmapped, Code::kUnavailable);
  EXPECT_THAT(done.status.to_string(), HasSubstr("rank 1 stage 0 map_to_kv_tensors"));
  EXPECT_THAT(mapped(), Each(0));
}

TEST_F(RemotePagesTest, AWorkerThatIsNotThereDidNothing) {
  good(0);
  GoodWorker& dead = good(1);
  dead.listener->stop(kLimit);
  const auto done = pages().map({0, 1});
  expect_ended(done, 2, PageMap::kUnmapped, Code::kUnavailable);
  EXPECT_THAT(done.status.to_string(), HasSubstr("rank 1 stage 0"));
  EXPECT_THAT(mapped(), Each(0));
}

// ---- unmap

TEST_F(RemotePagesTest, AnUnmapThatOneWorkerCannotPrepareIsAbortedOnTheOthers) {
  good(0);
  Memory& other = good(1, 2).memory;
  ASSERT_TRUE(pages().map({0, 1}).status.ok());
  ASSERT_TRUE(other.allocator->unmap(0, {0}).ok());
  const auto done = pages().unmap({0});
  expect_ended(done, 1, PageMap::kQuarantined, Code::kQuarantined);
  EXPECT_THAT(done.status.to_string(), HasSubstr("rank 1 stage 2"));
  EXPECT_THAT(done.status.to_string(), HasSubstr("not mapped"));
  EXPECT_THAT(mapped(), ElementsAre(2, 1));
  EXPECT_EQ(pending(), 0u);
  EXPECT_TRUE(pages().unmap({1}).status.ok());
}

TEST_F(RemotePagesTest, AnUnmapThatAWorkerDoesNotHearOfLeavesAllMapped) {
  good(0);
  GoodWorker& dead = good(1);
  ASSERT_TRUE(pages().map({0}).status.ok());
  dead.listener->stop(kLimit);
  expect_ended(pages().unmap({0}), 1, PageMap::kMapped, Code::kUnavailable);
  EXPECT_THAT(mapped(), ElementsAre(1, 1));
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RemotePagesTest, LostRepliesOfBothHalvesAreAskedForAgain) {
  good(0);
  Memory& lossy = bad(1, {Fate::kAnswer, Fate::kLose, Fate::kAnswer, Fate::kLose}).memory;
  ASSERT_TRUE(pages().map({0, 1}).status.ok());
  ASSERT_TRUE(pages().unmap({0, 1}).status.ok());
  EXPECT_THAT(mapped(), Each(0));
  EXPECT_THAT(lossy.heard(), SizeIs(5));
}

TEST_F(RemotePagesTest, APrepareThatMayHaveBeenHeardIsAborted) {
  good(0);
  bad(1, {Fate::kAnswer, Fate::kLose, Fate::kIgnore});
  ASSERT_TRUE(pages().map({0}).status.ok());
  expect_ended(pages().unmap({0}), 1, PageMap::kMapped, Code::kUnavailable);
  EXPECT_THAT(mapped(), ElementsAre(1, 1));
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RemotePagesTest, AnAbortThatIsNotHeardIsSaidAgainBeforeTheNextUnmap) {
  good(0);
  bad(1, {Fate::kAnswer, Fate::kLose, Fate::kIgnore, Fate::kIgnore, Fate::kIgnore});
  ASSERT_TRUE(pages().map({0}).status.ok());
  expect_ended(pages().unmap({0}), 1, PageMap::kMapped, Code::kUnavailable);
  EXPECT_EQ(pending(), 1u);
  EXPECT_TRUE(pages().unmap({0}).status.ok());
  EXPECT_THAT(mapped(), Each(0));
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RemotePagesTest, UndoingAMapFirstEndsWhatIsPending) {
  bad(0, {Fate::kAnswer, Fate::kLose, Fate::kIgnore, Fate::kIgnore, Fate::kIgnore});
  Memory& failing = good(1).memory;
  ASSERT_TRUE(pages().map({0}).status.ok());
  expect_ended(pages().unmap({0}), 1, PageMap::kMapped, Code::kUnavailable);
  ASSERT_EQ(pending(), 1u);
  failing.fail({"create"}, 2);
  expect_ended(pages().map({1}), 1, PageMap::kUnmapped, Code::kOutOfMemory);
  EXPECT_THAT(mapped(), ElementsAre(1, 1));
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RemotePagesTest, ACommitThatOneDriverRefusesIsUndoneOnTheOthers) {
  good(0);
  Memory& failing = good(1).memory;
  ASSERT_TRUE(pages().map({0, 1}).status.ok());
  failing.fail({"unmap"}, 999);
  const auto done = pages().unmap({0, 1});
  expect_ended(done, 2, PageMap::kMapped, Code::kDriver);
  EXPECT_THAT(done.status.to_string(), HasSubstr("rank 1 stage 0 commit_unmap_from_kv_tensors"));
  EXPECT_THAT(mapped(), ElementsAre(2, 2));
  EXPECT_EQ(pending(), 0u);
  failing.heal();
  EXPECT_TRUE(pages().unmap({0, 1}).status.ok());
  EXPECT_THAT(mapped(), Each(0));
}

TEST_F(RemotePagesTest, WhereThatCannotBeUndoneEitherThePagesAreSetAside) {
  Memory& first = good(0).memory;
  Memory& failing = good(1).memory;
  ASSERT_TRUE(pages().map({0}).status.ok());
  first.fail({"create"}, 2);
  failing.fail({"unmap"}, 999);
  expect_ended(pages().unmap({0}), 1, PageMap::kQuarantined, Code::kQuarantined);
  EXPECT_THAT(mapped(), ElementsAre(0, 1));
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RemotePagesTest, ACommitThatIsNeverAnsweredSetsPagesAsideAndBlocksNobody) {
  good(0);
  bad(1, {Fate::kAnswer, Fate::kAnswer, Fate::kIgnore, Fate::kIgnore});
  ASSERT_TRUE(pages().map({0, 1}).status.ok());
  expect_ended(pages().unmap({0}), 1, PageMap::kQuarantined, Code::kQuarantined);
  EXPECT_EQ(pending(), 1u);
  EXPECT_TRUE(pages().unmap({1}).status.ok());
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RemotePagesTest, AWorkerThatDoesNotSettleKeepsItsPagesAsTheyAre) {
  good(0);
  bad(1, {Fate::kAnswer, Fate::kAnswer, Fate::kAnswer, Fate::kDie});
  ASSERT_TRUE(pages().map({0, 1}).status.ok());
  ASSERT_TRUE(pages().unmap({0}).status.ok());
  expect_ended(pages().unmap({1}), 1, PageMap::kMapped, Code::kUnavailable);
  const auto done = pages().unmap({1});
  expect_ended(done, 1, PageMap::kMapped, Code::kUnavailable);
  EXPECT_THAT(done.status.to_string(), HasSubstr("rank 1 stage 0"));
  EXPECT_THAT(done.status.to_string(), HasSubstr("engine-2"));
}

// ---- under the books of pages

TEST_F(RemotePagesTest, ABookOfPagesMissesWhereAWorkerHasNoMemory) {
  good(0);
  Memory& failing = good(1).memory;
  PageOptions options;
  options.pages = 8;
  options.page_bytes = kPage;
  options.keeper = false;
  const auto book = std::move(*PageAllocator::make(options, pages(), clock_, {}));
  failing.fail({"create"}, 2);
  const auto missed = book->take(2);
  ASSERT_TRUE(missed.ok()) << missed.status().to_string();
  EXPECT_FALSE(missed->has_value());
  EXPECT_EQ(book->counts().free, 8);
  failing.heal();
  EXPECT_EQ(*book->take(2), (Pages{0, 1}));
  EXPECT_TRUE(book->give_back({0, 1}).ok());
  EXPECT_EQ(book->counts().free, 8);
  EXPECT_THAT(mapped(), Each(0));
}

}  // namespace
}  // namespace kv
