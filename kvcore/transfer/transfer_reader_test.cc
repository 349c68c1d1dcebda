// The reader's end: what is opened once, what is undone, and that neither end's death hurts the
// other.
#include "kvcore/transfer/transfer_reader.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kvcore/transfer/transfer_testing.h"

namespace kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kOthers;
using testing::kOwnWorker;
using testing::TransferWorld;

class TransferReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestHooks::built_in()) GTEST_SKIP() << "built without points";
  }
  CacheTransfer& transfer() { return *world_.transfer; }

  TransferWorld world_;
};

TEST_F(TransferReaderTest, ReadsTheBytesThatTheProducerWrote) {
  const auto cache = world_.build();
  const std::string stamp = "stamped";
  const DeviceAddress at = kCacheUnit - stamp.size();
  ASSERT_TRUE(
      world_.producer_vmm.copy_to_device(cache.address + at, stamp.data(), stamp.size()).ok());
  const auto reader = world_.reader(world_.reader_vmm);
  const auto view = reader->open(cache.id);
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_EQ(view->bytes, kCacheUnit);
  std::string read(stamp.size(), ' ');
  ASSERT_TRUE(
      world_.reader_vmm.copy_from_device(read.data(), view->address + at, read.size()).ok());
  EXPECT_EQ(read, stamp);
  EXPECT_TRUE(reader->release(cache.id).ok());
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
  world_.expect_clean();
}

TEST_F(TransferReaderTest, OpenedTwiceItIsOneLeaseAndOneOpening) {
  const auto cache = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  const auto first = reader->open(cache.id);
  const auto second = reader->open(cache.id);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->address, second->address);
  EXPECT_TRUE(reader->release(cache.id).ok());
  EXPECT_EQ(transfer().leases(cache.id), 1u);
  EXPECT_EQ(world_.reader_vmm.openings(), 1u);
  EXPECT_TRUE(reader->release(cache.id).ok());
  EXPECT_EQ(transfer().leases(cache.id), 0u);
  EXPECT_THAT(world_.reader_vmm.calls(), ElementsAre("open_shared", "close_shared"));
  EXPECT_EQ(reader->release(cache.id).code(), Code::kNotFound);
}

TEST_F(TransferReaderTest, ARefusalIsTheProducersWordsAndLeavesTheConnection) {
  const auto local = world_.build(kOwnWorker);
  const auto shared = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  const Status refused = reader->open(local.id).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.to_string(), HasSubstr("local to its worker"));
  EXPECT_EQ(reader->open_caches(), 0u);
  EXPECT_TRUE(reader->open(shared.id).ok());
  EXPECT_TRUE(reader->release_all().ok());
}

TEST_F(TransferReaderTest, AnOpeningThatTheDriverRefusesGivesTheLeaseBack) {
  const auto cache = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  world_.reader_vmm.fault = [](const std::string&, int) { return 2; };
  EXPECT_EQ(reader->open(cache.id).status().code(), Code::kOutOfMemory);
  EXPECT_EQ(transfer().leases(cache.id), 0u);
  EXPECT_EQ(transfer().drop(cache.id), StopResult::kDone);
}

TEST_F(TransferReaderTest, AClosingThatTheDriverRefusesKeepsItOpenForAnotherTry) {
  const auto cache = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  ASSERT_TRUE(reader->open(cache.id).ok());
  world_.reader_vmm.fault = [](const std::string&, int) { return 999; };
  EXPECT_EQ(reader->release(cache.id).native(), 999);
  EXPECT_EQ(transfer().leases(cache.id), 1u);
  world_.reader_vmm.fault = nullptr;
  EXPECT_TRUE(reader->release(cache.id).ok());
  EXPECT_EQ(transfer().leases(cache.id), 0u);
  EXPECT_EQ(world_.reader_vmm.openings(), 0u);
}

TEST_F(TransferReaderTest, AfterTheProducersEndWhatIsOpenIsReadAndReleased) {
  const auto cache = world_.build();
  const int value = 4711;
  ASSERT_TRUE(world_.producer_vmm.copy_to_device(cache.address, &value, sizeof value).ok());
  const auto reader = world_.reader(world_.reader_vmm);
  const auto view = reader->open(cache.id);
  ASSERT_TRUE(view.ok());
  world_.transfer.reset();
  ASSERT_TRUE(world_.producer_vmm.free(cache.address).ok());
  EXPECT_EQ(reader->view(cache.id).status().code(), Code::kUnavailable);
  EXPECT_EQ(reader->open(cache.id).status().code(), Code::kUnavailable);
  EXPECT_EQ(reader->open(cache.id + 1).status().code(), Code::kUnavailable);
  const auto orphan = reader->orphan(cache.id);
  ASSERT_TRUE(orphan.ok());
  int read = 0;
  ASSERT_TRUE(world_.reader_vmm.copy_from_device(&read, orphan->address, sizeof read).ok());
  EXPECT_EQ(read, value);
  EXPECT_TRUE(reader->release(cache.id).ok());
  world_.expect_clean();
}

TEST_F(TransferReaderTest, TheNextProducersCacheOfTheSameNumberIsReachedAfterTheRelease) {
  const auto old = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  const auto before = reader->open(old.id);
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(before->generation, transfer().generation());
  world_.start(world_.memory);  // it never dropped its cache
  const auto fresh = world_.build();
  ASSERT_EQ(fresh.id, old.id);
  EXPECT_EQ(reader->open(fresh.id).status().code(), Code::kUnavailable);
  EXPECT_EQ(reader->view(fresh.id).status().code(), Code::kUnavailable);
  EXPECT_EQ(transfer().leases(fresh.id), 0u);
  EXPECT_TRUE(reader->release(old.id).ok());
  const auto after = reader->open(fresh.id);
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_EQ(after->generation, transfer().generation());
  EXPECT_NE(after->generation, before->generation);
  EXPECT_EQ(transfer().leases(fresh.id), 1u);
  EXPECT_TRUE(reader->release(fresh.id).ok());
  EXPECT_EQ(transfer().drop(fresh.id), StopResult::kDone);
  ASSERT_TRUE(world_.producer_vmm.free(old.address).ok());
  world_.expect_clean();
}

TEST_F(TransferReaderTest, ReleasingAllGoesOnAfterAFailureAndSaysTheFirst) {
  const auto first = world_.build();
  const auto second = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  ASSERT_TRUE(reader->open(first.id).ok());
  ASSERT_TRUE(reader->open(second.id).ok());
  ASSERT_TRUE(reader->open(second.id).ok());
  world_.reader_vmm.start_counting();
  world_.reader_vmm.fault = [](const std::string&, int number) { return number == 0 ? 999 : 0; };
  EXPECT_EQ(reader->release_all().native(), 999);
  EXPECT_EQ(reader->open_caches(), 1u);
  EXPECT_TRUE(reader->release_all().ok());
  EXPECT_EQ(world_.reader_vmm.openings(), 0u);
}

TEST_F(TransferReaderTest, NobodyThereAndNoPathAreToldApart) {
  const auto connect = [&](const std::string& path) {
    return CacheReader::connect(path, world_.reader_vmm, world_.clock).status().code();
  };
  EXPECT_EQ(connect(world_.root.path() + "/nobody.sock"), Code::kUnavailable);
  EXPECT_EQ(connect(""), Code::kInvalidArgument);
  EXPECT_EQ(connect(std::string(200, 'x')), Code::kInvalidArgument);
}

TEST_F(TransferReaderTest, AProducerThatDoesNotAnswerInTimeIsGivenUp) {
  const auto held = world_.build();
  const auto cache = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  ASSERT_TRUE(reader->open(held.id).ok());
  world_.moments.hold("listener.handler.begin");
  Status said;
  std::thread asking([&] { said = reader->open(cache.id).status(); });
  world_.moments.await("listener.handler.begin", 2);
  world_.clock.set(Time(std::chrono::seconds(60)));
  asking.join();
  EXPECT_EQ(said.code(), Code::kDeadline);
  world_.moments.open("listener.handler.begin");
  // The lease that it got too late ends with the connection that it does not have any more, and so
  // does that of the cache which it holds.
  world_.moments.await("transfer.lease.end", 2);
  EXPECT_EQ(transfer().leases(held.id) + transfer().leases(cache.id), 0u);
  EXPECT_EQ(reader->view(held.id).status().code(), Code::kUnavailable);
  EXPECT_EQ(reader->open(cache.id).status().code(), Code::kUnavailable);
  EXPECT_TRUE(reader->release(held.id).ok());
  EXPECT_TRUE(reader->open(cache.id).ok());
  EXPECT_TRUE(reader->release_all().ok());
}

// A producer of another kind: answers what it is told to.
class TransferReaderReplies : public ::testing::Test {
 protected:
  void SetUp() override {
    listening_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_ = root_.path() + "/s";
    std::memcpy(address.sun_path, path_.data(), path_.size());
    ASSERT_EQ(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listening_.get(), 1), 0);
    connect();
  }
  void connect() {
    auto reader = CacheReader::connect(path_, vmm_, clock_);
    ASSERT_TRUE(reader.ok());
    reader_ = std::move(*reader);
    peer_.reset(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  void answer(const std::string& bytes) {
    EXPECT_EQ(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // The answer to a fresh reader's first request.
  Status open_with(const std::string& bytes) {
    connect();
    std::thread answering([&] {
      char request = 0;
      EXPECT_EQ(::recv(peer_.get(), &request, 1, 0), 1);
      answer(bytes);
      ::shutdown(peer_.get(), SHUT_WR);
    });
    const Status status = reader_->open(1).status();
    answering.join();
    EXPECT_EQ(reader_->open_caches(), 0u);
    EXPECT_TRUE(vmm_.calls().empty());
    return status;
  }
  static std::string offer(const Value& handle, const Value& bytes, const Value& generation = 1) {
    return testing::frame_of(
        {{"status", "success"}, {"handle", handle}, {"bytes", bytes}, {"generation", generation}});
  }

  testing::TempDir root_;
  ManualClock clock_;
  ModelVmm vmm_;
  std::string path_;
  UniqueFd listening_, peer_;
  std::unique_ptr<CacheReader> reader_;
};

TEST_F(TransferReaderReplies, ThatMakeNoSenseOpenNothing) {
  const std::string handle(128, 'a');
  EXPECT_EQ(open_with(offer(handle, 0)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(handle, "many")).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(handle, 4096, "old")).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(handle.substr(1), 4096)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(std::string(128, 'g'), 4096)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(7, 4096)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(testing::frame_of({{"state", "success"}})).code(), Code::kProtocol);
  EXPECT_EQ(open_with(std::string("\0\0\0\5hello", 9)).code(), Code::kProtocol);
  EXPECT_EQ(open_with("\x7f\xff\xff\xff").code(), Code::kProtocol);
}

// The lease that such a reply may stand for can only end with the connection.
TEST_F(TransferReaderReplies, WithoutAStatusGiveTheConnectionUp) {
  std::thread answering([&] {
    char request = 0;
    EXPECT_EQ(::recv(peer_.get(), &request, 1, 0), 1);
    answer(testing::frame_of({{"state", "success"}}));
  });
  EXPECT_EQ(reader_->open(1).status().code(), Code::kProtocol);
  answering.join();
  std::string rest(4096, ' ');
  EXPECT_GT(::recv(peer_.get(), rest.data(), rest.size(), 0), 0);  // of the request
  EXPECT_EQ(::recv(peer_.get(), rest.data(), rest.size(), 0), 0);
}

// As where a process that came after took the connection over.
TEST_F(TransferReaderReplies, OfAnotherGenerationThanThatOfWhatIsHeldOpenNothing) {
  ModelVmm maker;
  std::string handle;
  const auto shared = maker.share(maker.allocate(kCacheUnit).value_or(0));
  ASSERT_TRUE(shared.ok());
  for (const char byte : shared->bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto value = static_cast<unsigned char>(byte);
    handle += {kDigits[value >> 4], kDigits[value & 15]};
  }
  std::thread answering([&] {
    std::string request(4096, ' ');
    for (const int generation : {1, 2, 2}) {
      EXPECT_GT(::recv(peer_.get(), request.data(), request.size(), 0), 0);
      answer(offer(handle, static_cast<std::int64_t>(kCacheUnit), generation));
    }
  });
  EXPECT_TRUE(reader_->open(1).ok());
  const Status other = reader_->open(2).status();  // asks for it, and gives it back
  EXPECT_EQ(other.code(), Code::kUnavailable);
  EXPECT_THAT(other.to_string(), HasSubstr("another producer answers than that of cache 1"));
  answering.join();
  EXPECT_EQ(vmm_.openings(), 1u);
  EXPECT_TRUE(reader_->view(1).ok());
  peer_.reset();
  EXPECT_TRUE(reader_->release(1).ok());
}

}  // namespace
}  // namespace kv
