#include "kvcore/wire/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvcore/base/unique_fd.h"
#include "kvcore/wire/frame.h"
#include "kvcore/wire/pickle.h"

namespace kv {
namespace {

using namespace std::chrono_literals;  // NOLINT: units
using namespace std::string_literals;  // NOLINT: texts with zero bytes in them
using ::testing::HasSubstr;

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/kvclientXXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

int listen_at(const std::string& path, int backlog) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd, backlog), 0);
  return fd;
}

// Accepts one connection on a thread of its own and lets `serve` have it.
class Server {
 public:
  Server(const Folder& folder, int rank, std::function<void(int fd)> serve) {
    peer_.rank = rank;
    peer_.socket_path = folder.file("w" + std::to_string(rank) + ".sock");
    listening_.reset(listen_at(peer_.socket_path, 16));
    thread_ = std::thread([this, serve = std::move(serve)] {
      const UniqueFd fd(::accept(listening_.get(), nullptr, nullptr));
      if (fd) serve(fd.get());
    });
  }
  ~Server() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }
  const Peer& peer() const { return peer_; }

 private:
  Peer peer_;
  UniqueFd listening_;
  std::thread thread_;
};

Message receive(int fd) {
  FrameReader reader(64u << 20);
  while (!reader.complete()) {
    const auto part = reader.want().value();
    const ssize_t n = ::recv(fd, part.data, part.size, 0);
    if (n <= 0) return {};
    if (!reader.got(static_cast<std::size_t>(n)).ok()) return {};
  }
  return decode_pickle(reader.body()).value_or(Message{});
}

void send_bytes(int fd, const std::string& bytes) {
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}
void reply(int fd, const Message& message) {
  send_bytes(fd, encode_frame(encode_pickle(message).value()).value());
}
// Until the client has closed its end.
void drain(int fd) {
  char bytes[4096];
  while (::recv(fd, bytes, sizeof bytes, 0) > 0) {
  }
}

const Message kAsk = {{"cmd", "kv_tensors_created"}, {"group_id", 0}};
const Message kYes = {{"status", "success"}, {"created", true}};
// More than a socket takes while nobody reads.
Message large_request() {
  return {{"cmd", "map_to_kv_tensors"}, {"pad", std::string(8 << 20, 'x')}};
}

void expect_error(const Result<Message>& result, Code code, const std::string& why) {
  ASSERT_FALSE(result.ok()) << why;
  EXPECT_EQ(result.error().code(), code) << result.error().to_string();
  EXPECT_EQ(result.error().operation(), "client.request");
  EXPECT_THAT(result.error().to_string(), HasSubstr(why));
}

TEST(ClientRequest, BringsTheReplyWhateverItsStatus) {
  const Message kNo = {{"status", "error"}, {"message", "no"}};
  for (const Message& answer : {kYes, kNo}) {
    const Folder folder;
    RealClock clock;
    std::promise<Message> seen;
    const Server server(folder, 0, [&](int fd) {
      seen.set_value(receive(fd));
      reply(fd, answer);
    });
    const auto result = Client(clock).request(server.peer(), kAsk);
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_EQ(*result, answer);
    EXPECT_EQ(seen.get_future().get(), kAsk);
  }
}

TEST(ClientRequest, SaysWhetherItCanHaveBeenCarriedOut) {
  const Folder folder;
  RealClock clock;
  const auto nobody = Client(clock).request({0, 0, folder.file("none.sock")}, kAsk);
  EXPECT_TRUE(not_carried_out(nobody.error())) << nobody.error().to_string();
  const auto too_long = Client(clock).request({0, 0, std::string(200, 'x')}, kAsk);
  EXPECT_TRUE(not_carried_out(too_long.error())) << too_long.error().to_string();
  const Server server(folder, 0, [](int fd) { receive(fd); });
  const auto lost = Client(clock).request(server.peer(), kAsk);
  EXPECT_FALSE(not_carried_out(lost.error())) << lost.error().to_string();
}

TEST(ClientRequest, NamesRankStageAndCommandWhenNobodyListens) {
  const Folder folder;
  RealClock clock;
  const Peer peer{2, 1, folder.file("none.sock")};
  const auto result = Client(clock).request(peer, kAsk);
  expect_error(result, Code::kUnavailable, "rank 2 stage 1 kv_tensors_created");
  expect_error(result, Code::kUnavailable, "none.sock: No such file or directory");
  expect_error(result, Code::kUnavailable, "the request was not carried out");
  EXPECT_EQ(result.error().native(), ENOENT);
}

TEST(ClientRequest, SaysThatTheQueueIsFull) {
  const Folder folder;
  RealClock clock;
  const Peer peer{0, 0, folder.file("full.sock")};
  const UniqueFd listening(listen_at(peer.socket_path, 0));
  // Connections that nobody accepts.
  std::vector<UniqueFd> waiting;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, peer.socket_path.data(), peer.socket_path.size());
  for (int rc = 0; rc == 0;) {
    waiting.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    rc = ::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof address);
  }
  expect_error(Client(clock).request(peer, kAsk), Code::kUnavailable,
               "the listener's queue is full");
}

TEST(ClientRequest, RefusesAPathThatNoSocketCanHave) {
  RealClock clock;
  expect_error(Client(clock).request({0, 0, "/" + std::string(107, 'x')}, kAsk),
               Code::kInvalidArgument, "socket path of 108 bytes; expected 1 to 107");
  expect_error(Client(clock).request({0, 0, ""}, kAsk), Code::kInvalidArgument, "0 bytes");
}

TEST(ClientRequest, RefusesWhatCannotBeEncoded) {
  RealClock clock;
  const auto result = Client(clock).request({0, 0, "/nowhere"}, {{"cmd", "\xff"}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(result.error().to_string(), HasSubstr("not UTF-8"));
}

struct BadReply {
  std::string bytes;
  Code code;
  std::string why;
};
class ClientBadReply : public ::testing::TestWithParam<BadReply> {};

TEST_P(ClientBadReply, IsAnErrorWithAnUnknownOutcome) {
  const Folder folder;
  RealClock clock;
  const Server server(folder, 0, [](int fd) {
    receive(fd);
    if (!GetParam().bytes.empty()) send_bytes(fd, GetParam().bytes);
  });
  const auto result = Client(clock).request(server.peer(), kAsk);
  expect_error(result, GetParam().code, GetParam().why);
  expect_error(result, GetParam().code, "whether the request was carried out is unknown");
}

INSTANTIATE_TEST_SUITE_P(
    All, ClientBadReply,
    ::testing::Values(
        BadReply{"", Code::kUnavailable, "closed the connection before its reply"},
        BadReply{"\0\0\0\x09half"s, Code::kUnavailable, "closed the connection inside its reply"},
        BadReply{"\xff\xff\xff\xff", Code::kProtocol, "-1 bytes"},
        BadReply{"\x01\0\0\x01"s, Code::kProtocol, "16777217 bytes; expected 0 to 16777216"},
        BadReply{"\0\0\0\3abc"s, Code::kProtocol, "byte 0: protocol: expected a protocol opcode"}));

TEST(ClientRequest, IsNotCarriedOutWhenThePeerClosesInItsMiddle) {
  const Folder folder;
  RealClock clock;
  const Server server(folder, 0, [](int fd) {
    char one;
    EXPECT_EQ(::recv(fd, &one, 1, 0), 1);
  });
  expect_error(Client(clock).request(server.peer(), large_request()), Code::kUnavailable,
               "the request was not carried out");
}

TEST(ClientRequest, StillReadsAReplyThatCameBeforeThePeerClosed) {
  const Folder folder;
  RealClock clock;
  const Server server(folder, 0, [](int fd) { reply(fd, {{"status", "error"}}); });
  const auto result = Client(clock).request(server.peer(), large_request());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(*result, (Message{{"status", "error"}}));
}

// What a request came to when the clock was moved to `moved` after it had reached its silent
// server. With `answer` the server replies after that.
Result<Message> moved_while_waiting(Nanos timeout, Nanos moved, bool answer) {
  const Folder folder;
  ManualClock clock(Time(1h));
  std::promise<void> arrived, go_on;
  const Server server(folder, 3, [&](int fd) {
    receive(fd);
    arrived.set_value();
    go_on.get_future().wait();
    if (answer) reply(fd, kYes);
    drain(fd);
  });
  auto result = std::async(std::launch::async, [&] {
    return Client(clock, {.timeout = timeout, .max_body = 1000}).request(server.peer(), kAsk);
  });
  arrived.get_future().wait();
  clock.set(Time(1h + moved));
  if (!answer) result.wait();
  go_on.set_value();
  return result.get();
}

TEST(ClientDeadline, EndsTheRequestAndLeavesItsOutcomeUnknown) {
  const auto result = moved_while_waiting(60s, 60s, false);
  expect_error(result, Code::kDeadline, "rank 3 stage 0 kv_tensors_created");
  expect_error(result, Code::kDeadline, "whether the request was carried out is unknown");
}

TEST(ClientDeadline, HasNotComeANanosecondEarlier) {
  EXPECT_TRUE(moved_while_waiting(60s, 60s - 1ns, true).ok());
}

TEST(ClientDeadline, IsNeverWithATimeoutOf0OrLess) {
  EXPECT_TRUE(moved_while_waiting(0s, 24h * 365, true).ok());
  EXPECT_TRUE(moved_while_waiting(-1s, 24h * 365, true).ok());
  EXPECT_TRUE(moved_while_waiting(Nanos::max(), 24h * 365, true).ok());
}

TEST(ClientDeadline, ARequestThatWasNotSentWholeWasNotCarriedOut) {
  const Folder folder;
  ManualClock clock;
  std::promise<void> begun, over;
  const Server server(folder, 0, [&](int fd) {
    char one;
    EXPECT_EQ(::recv(fd, &one, 1, 0), 1);
    begun.set_value();
    over.get_future().wait();
  });
  auto result = std::async(std::launch::async,
                           [&] { return Client(clock).request(server.peer(), large_request()); });
  begun.get_future().wait();
  clock.set(Time(60s));
  expect_error(result.get(), Code::kDeadline, "the request was not carried out");
  over.set_value();
}

TEST(Broadcast, HasAllRequestsUnderWayAtOnce) {
  const Folder folder;
  RealClock clock;
  constexpr int kRanks = 8;
  // Nobody answers before everybody was asked.
  std::latch asked(kRanks);
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<Peer> peers;
  for (int rank = 0; rank < kRanks; ++rank) {
    servers.push_back(std::make_unique<Server>(folder, rank, [&asked, rank](int fd) {
      receive(fd);
      asked.arrive_and_wait();
      reply(fd, {{"rank", rank}});
    }));
    peers.push_back(servers.back()->peer());
  }
  const auto results = Client(clock).broadcast(peers, kAsk);
  ASSERT_EQ(results.size(), std::size_t{kRanks});
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(results[rank].ok()) << results[rank].error().to_string();
    EXPECT_EQ(*results[rank], (Message{{"rank", rank}}));
  }
}

TEST(Broadcast, SendsLargeRequestsSideBySide) {
  const Folder folder;
  RealClock clock;
  constexpr int kRanks = 4;
  // Each reads only when all those behind it have read their whole request.
  std::vector<std::promise<void>> read(kRanks);
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<Peer> peers;
  for (int rank = 0; rank < kRanks; ++rank) {
    servers.push_back(std::make_unique<Server>(folder, rank, [&read, rank](int fd) {
      if (rank + 1 < kRanks) read[rank + 1].get_future().wait();
      const bool whole = !receive(fd).empty();
      read[rank].set_value();
      reply(fd, {{"whole", whole}});
    }));
    peers.push_back(servers.back()->peer());
  }
  for (const auto& result : Client(clock).broadcast(peers, large_request())) {
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_EQ(*result, (Message{{"whole", true}}));
  }
}

TEST(Broadcast, JudgesEachRankByItself) {
  const Folder folder;
  ManualClock clock;
  std::promise<void> asked, replied;
  const Server fine(folder, 0, [&](int fd) {
    receive(fd);
    reply(fd, kYes);
    replied.set_value();
    drain(fd);
  });
  const Server silent(folder, 1, [&](int fd) {
    receive(fd);
    asked.set_value();
    drain(fd);
  });
  const Peer gone{2, 0, folder.file("gone.sock")};
  std::promise<void> answered;
  const Server late(folder, 3, [&](int fd) {
    receive(fd);
    reply(fd, kYes);
    answered.set_value();
    drain(fd);
  });
  auto pending = std::async(std::launch::async, [&] {
    return Client(clock).broadcast({fine.peer(), silent.peer(), gone, late.peer()}, kAsk);
  });
  replied.get_future().wait();
  asked.get_future().wait();
  answered.get_future().wait();
  clock.set(Time(60s));
  const auto results = pending.get();
  ASSERT_EQ(results.size(), 4u);
  EXPECT_TRUE(results[0].ok());
  expect_error(results[1], Code::kDeadline, "rank 1 ");
  expect_error(results[2], Code::kUnavailable, "rank 2 ");
  // Its reply was there in time, though a silent rank stood before it.
  EXPECT_TRUE(results[3].ok());
}

TEST(Broadcast, ToNobodyIsNothing) {
  RealClock clock;
  EXPECT_TRUE(Client(clock).broadcast({}, kAsk).empty());
}

}  // namespace
}  // namespace kv
