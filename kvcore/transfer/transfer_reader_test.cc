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
  int read = 0;
  ASSERT_TRUE(world_.reader_vmm.copy_from_device(&read, view->address, sizeof read).ok());
  EXPECT_EQ(read, value);
  EXPECT_EQ(reader->open(cache.id + 1).status().code(), Code::kUnavailable);
  EXPECT_TRUE(reader->release(cache.id).ok());
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
  const auto cache = world_.build();
  const auto reader = world_.reader(world_.reader_vmm);
  world_.moments.hold("listener.handler.begin");
  Status said;
  std::thread asking([&] { said = reader->open(cache.id).status(); });
  world_.moments.await("clock.wait", 1, "transfer.reply");
  world_.moments.await("listener.handler.begin");
  world_.clock.set(Time(std::chrono::seconds(60)));
  asking.join();
  EXPECT_EQ(said.code(), Code::kDeadline);
  world_.moments.open("listener.handler.begin");
  // The lease that it got too late ends with the connection that it does not have any more.
  world_.moments.await("transfer.lease.end");
  EXPECT_EQ(transfer().leases(cache.id), 0u);
  EXPECT_EQ(reader->open(cache.id).status().code(), Code::kUnavailable);
}

// A producer of another kind: answers the next request with these bytes.
class TransferReaderReplies : public ::testing::Test {
 protected:
  Status open_with(const std::string& bytes) {
    const UniqueFd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = root_.path() + "/s" + std::to_string(++sockets_);
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listening.get(), 1), 0);
    auto reader = CacheReader::connect(path, vmm_, clock_);
    EXPECT_TRUE(reader.ok());
    const UniqueFd peer(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    ::shutdown(peer.get(), SHUT_WR);
    const Status status = (*reader)->open(1).status();
    EXPECT_EQ((*reader)->open_caches(), 0u);
    EXPECT_TRUE(vmm_.calls().empty());
    return status;
  }

  testing::TempDir root_;
  ManualClock clock_;
  ModelVmm vmm_;
  int sockets_ = 0;
};

TEST_F(TransferReaderReplies, ThatMakeNoSenseOpenNothing) {
  const auto offer = [](const Value& handle, const Value& bytes) {
    return testing::frame_of({{"status", "success"}, {"handle", handle}, {"bytes", bytes}});
  };
  const std::string handle(128, 'a');
  EXPECT_EQ(open_with(offer(handle, 0)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(handle, "many")).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(handle.substr(1), 4096)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(std::string(128, 'g'), 4096)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(offer(7, 4096)).code(), Code::kProtocol);
  EXPECT_EQ(open_with(testing::frame_of({{"state", "success"}})).code(), Code::kProtocol);
  EXPECT_EQ(open_with(std::string("\0\0\0\5hello", 9)).code(), Code::kProtocol);
  EXPECT_EQ(open_with("\x7f\xff\xff\xff").code(), Code::kProtocol);
}

}  // namespace
}  // namespace kv
