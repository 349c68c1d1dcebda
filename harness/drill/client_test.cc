#include "harness/drill/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/process/leftovers.h"
#include "harness/wire/wire.h"

namespace kv::drill {
namespace {

using ::testing::ElementsAre;

// The other side: a listening socket and the one connection that it accepts. Both block; whatever
// a client has sent is there when its call has returned.
class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kdcXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/s";
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    ASSERT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener_, 0), 0);
  }
  void TearDown() override {
    hang_up();
    ::close(listener_);
    remove_tree(folder_);
  }

  void accept() {
    peer_ = ::accept(listener_, nullptr, nullptr);
    ASSERT_GE(peer_, 0);
  }
  void connect() {
    ASSERT_EQ(client_.connect(path_), 0);
    accept();
  }
  void hang_up() {
    if (peer_ >= 0) ::close(peer_);
    peer_ = -1;
  }
  // What the peer can read now; "(end)" at the end of the stream.
  std::string peer_reads() const {
    std::string text(1 << 16, '\0');
    const ssize_t got = ::recv(peer_, text.data(), text.size(), MSG_DONTWAIT);
    if (got == 0) return "(end)";
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }
  void peer_sends(const std::string& bytes) const {
    ASSERT_EQ(::send(peer_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  std::string folder_, path_;
  int listener_ = -1, peer_ = -1;
  Client client_;
};

TEST_F(ClientTest, SaysAtOnceWhyItCannotConnect) {
  EXPECT_EQ(client_.connect(folder_ + "/none"), ENOENT);
  EXPECT_EQ(client_.connect(""), ENOENT);
  EXPECT_EQ(client_.connect(std::string("a\0b", 3)), EINVAL);
  EXPECT_EQ(client_.connect("/" + std::string(107, 'x')), ENAMETOOLONG);
  EXPECT_EQ(client_.connect("/" + std::string(106, 'x')), ENOENT) << "107 bytes are allowed";
  Client first;
  EXPECT_EQ(first.connect(path_), 0);
  EXPECT_EQ(client_.connect(path_), EAGAIN) << "the listener's queue is full";
  EXPECT_EQ(first.connect(path_), EISCONN);
  ::close(std::exchange(listener_, -1));
  EXPECT_EQ(client_.connect(path_), ECONNREFUSED);
  EXPECT_FALSE(client_.open());
}

TEST_F(ClientTest, TheRestGoesInAsManyPiecesAsOneLikes) {
  connect();
  EXPECT_EQ(client_.send("abcdef", 1), 0);
  EXPECT_EQ(peer_reads(), "a");
  EXPECT_EQ(client_.release_rest(2), 0);
  EXPECT_EQ(peer_reads(), "bc");
  EXPECT_EQ(client_.send("gh", std::nullopt), 0);
  EXPECT_EQ(peer_reads(), "") << "it waits behind what is held back";
  EXPECT_EQ(client_.release_rest(99), 0);
  EXPECT_EQ(peer_reads(), "defgh");
  EXPECT_EQ(client_.send("i", std::nullopt), 0);
  EXPECT_EQ(peer_reads(), "i");
}

TEST_F(ClientTest, SendsTheFirstBytesAndTheRestWhenReleased) {
  connect();
  EXPECT_EQ(client_.send("header-body", 7), 0);
  EXPECT_EQ(peer_reads(), "header-");
  EXPECT_FALSE(client_.wants_write()) << "what is withheld is not waiting for the socket";
  EXPECT_EQ(client_.flush(), 0);
  EXPECT_EQ(peer_reads(), "");
  EXPECT_EQ(client_.send(" behind", std::nullopt), 0);
  EXPECT_EQ(peer_reads(), "") << "what comes later does not overtake";
  EXPECT_EQ(client_.release_rest(), 0);
  EXPECT_EQ(peer_reads(), "body behind");
  EXPECT_EQ(client_.send("next", 0), 0);
  EXPECT_EQ(peer_reads(), "");
  EXPECT_EQ(client_.release_rest(), 0);
  EXPECT_EQ(peer_reads(), "next");
  EXPECT_EQ(client_.send("whole", 5), 0);
  EXPECT_EQ(client_.send(" again", std::nullopt), 0);
  EXPECT_EQ(peer_reads(), "whole again");
}

TEST_F(ClientTest, NeverBlocksOnAPeerThatDoesNotRead) {
  connect();
  const std::string large(8 << 20, 'x');
  EXPECT_EQ(client_.send(large, std::nullopt), EAGAIN);
  EXPECT_TRUE(client_.wants_write());
  std::size_t read = 0;
  while (read < large.size()) {
    read += peer_reads().size();
    const int error = client_.flush();
    ASSERT_TRUE(error == 0 || error == EAGAIN) << error;
  }
  EXPECT_EQ(client_.flush(), 0);
  EXPECT_FALSE(client_.wants_write());
  EXPECT_EQ(read, large.size());
}

TEST_F(ClientTest, APeerThatIsGoneGivesEpipeAndNoSignal) {
  connect();
  EXPECT_EQ(client_.send("0123456789", 4), 0);
  EXPECT_EQ(peer_reads(), "0123");
  hang_up();
  EXPECT_EQ(client_.release_rest(), EPIPE);
  EXPECT_FALSE(client_.wants_write()) << "nobody will take it any more";
  EXPECT_EQ(client_.flush(), 0);
}

TEST_F(ClientTest, TakesFramesOffTheReply) {
  connect();
  const std::string frames = frame("one") + frame("") + frame("three");
  peer_sends(frames.substr(0, 5));
  EXPECT_TRUE(client_.receive());
  EXPECT_EQ(client_.take_frame(), std::nullopt);
  peer_sends(frames.substr(5));
  EXPECT_TRUE(client_.receive());
  EXPECT_EQ(client_.take_frame(), "one");
  EXPECT_EQ(client_.take_frame(), "");
  EXPECT_EQ(client_.take_frame(), "three");
  EXPECT_EQ(client_.take_frame(), std::nullopt);
  EXPECT_EQ(client_.received(), "");
  EXPECT_FALSE(client_.ended());
}

TEST_F(ClientTest, ReceivesWhatCameBeforeTheEnd) {
  connect();
  peer_sends("last words");
  hang_up();
  EXPECT_FALSE(client_.receive());
  EXPECT_TRUE(client_.ended());
  EXPECT_FALSE(client_.reset());
  EXPECT_EQ(client_.received(), "last words");
  EXPECT_FALSE(client_.receive());
}

TEST_F(ClientTest, TellsAResetFromAnEnd) {
  connect();
  EXPECT_EQ(client_.send("unread", std::nullopt), 0);
  hang_up();
  EXPECT_FALSE(client_.receive());
  EXPECT_TRUE(client_.ended());
  EXPECT_TRUE(client_.reset());
}

TEST_F(ClientTest, AHalfCloseStillReceives) {
  connect();
  EXPECT_EQ(client_.send("question", std::nullopt), 0);
  client_.close(true);
  EXPECT_EQ(peer_reads(), "question");
  EXPECT_EQ(peer_reads(), "(end)");
  peer_sends("answer");
  EXPECT_TRUE(client_.receive());
  EXPECT_EQ(client_.received(), "answer");
  EXPECT_EQ(client_.send("more", std::nullopt), EPIPE);
}

TEST_F(ClientTest, AClosedClientKeepsWhatItReceivedUntilItConnectsAgain) {
  connect();
  peer_sends("kept");
  EXPECT_TRUE(client_.receive());
  client_.close(false);
  EXPECT_EQ(peer_reads(), "(end)");
  EXPECT_FALSE(client_.open());
  EXPECT_FALSE(client_.receive());
  EXPECT_EQ(client_.received(), "kept");
  EXPECT_EQ(client_.send("x", std::nullopt), EBADF);
  hang_up();
  connect();
  EXPECT_EQ(client_.received(), "");
  EXPECT_EQ(client_.send("y", std::nullopt), 0);
  EXPECT_EQ(peer_reads(), "y") << "nothing of before";
}

TEST_F(ClientTest, TellsWhatPasses) {
  std::vector<std::string> told;
  client_.tell_to([&told](std::string_view what) { told.emplace_back(what); });
  connect();
  const std::string request = frame(pickle(Value::Dict{{"cmd", "a"}}));
  client_.send(request, 4);
  client_.release_rest(6);
  client_.release_rest();
  client_.send(std::string("\1\2\3", 3), std::nullopt);
  const std::string reply = frame(pickle(Value::Dict{{"status", "success"}}));
  ASSERT_EQ(::send(peer_, reply.data(), reply.size(), 0), static_cast<ssize_t>(reply.size()));
  client_.receive();
  ASSERT_TRUE(client_.take_frame());
  ASSERT_EQ(::send(peer_, (reply + reply).data(), 2 * reply.size() - 3, 0),
            static_cast<ssize_t>(2 * reply.size() - 3));
  client_.receive();
  ASSERT_EQ(peer_reads().size(), request.size() + 3);  // else the end would be a reset
  ASSERT_EQ(::send(peer_, "xy", 2, 0), 2);
  hang_up();
  while (client_.receive()) {
  }
  client_.close(true);
  client_.close(false);
  EXPECT_THAT(
      told, ElementsAre("is connected to " + path_,
                        "sends 4 of " + std::to_string(request.size()) + R"( bytes: {"cmd": "a"})",
                        "sends 6 more bytes",
                        "sends " + std::to_string(request.size() - 10) + " more bytes",
                        "sends 3 bytes: 01 02 03", R"(gets {"status": "success"})",
                        R"(gets {"status": "success"})", "gets 2 bytes, no whole reply",
                        "sees the end of the connection", "closes its sending half", "closes"));
}

TEST_F(ClientTest, MovesWithItsConnection) {
  connect();
  EXPECT_EQ(client_.send("ab", 1), 0);
  Client other = std::move(client_);
  EXPECT_FALSE(client_.open());  // NOLINT: that is the point
  EXPECT_EQ(other.release_rest(), 0);
  EXPECT_EQ(peer_reads(), "ab");
  other = Client();
  EXPECT_EQ(peer_reads(), "(end)");
}

}  // namespace
}  // namespace kv::drill
