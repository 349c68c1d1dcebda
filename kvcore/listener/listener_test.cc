// Serving: what a listener does while nobody stops it.
#include "kvcore/listener/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "kvcore/base/peer_log.h"
#include "kvcore/listener/listener_testing.h"

namespace kv {
namespace {

using testing::frame_of;
using ::testing::HasSubstr;
using testing::Moments;
using testing::RawClient;
using testing::TempDir;
using testing::text_of;

Message command(std::string_view name) {
  return Message{{"cmd", Value(name)}};
}

// A listener on an echo handler: {"status": "success", "cmd": <the request's>}; "throw" throws,
// "fail" fails, "big" answers with 8 MiB.
class ListenerTest : public ::testing::Test {
 protected:
  static Result<Message> handle(const Message& request) {
    const std::string cmd = text_field(request, "cmd").value_or("(none)");
    if (cmd == "throw") throw std::runtime_error("handler says no");
    if (cmd == "throw a number") throw 7;
    if (cmd == "fail") return Status::error(Code::kQuarantined, "map", "page 3");
    if (cmd == "unsendable") return Message{{"text", std::string("\xff\xfe")}};
    Message reply{{"status", "success"}, {"cmd", cmd}};
    if (cmd == "big") reply.emplace_back("bytes", std::string(8u << 20, 'x'));
    return reply;
  }

  void start(std::uint32_t max_body = 16u << 20) {
    ListenerOptions options;
    options.socket_root = root_.path();
    options.socket_path = path_;
    options.max_body = max_body;
    options.label = "listener.test";
    auto started = Listener::start(options, &ListenerTest::handle, clock_,
                                   [this](Severity severity, std::string_view line) {
                                     const std::lock_guard lock(log_mutex_);
                                     if (severity != Severity::kInfo) log_.emplace_back(line);
                                   });
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    listener_ = std::move(*started);
  }
  RawClient connected() {
    RawClient client;
    EXPECT_EQ(client.connect(path_), 0);
    return client;
  }
  void expect_served() {
    RawClient client = connected();
    client.send(command("hello"));
    EXPECT_EQ(text_of(client.reply(), "cmd"), "hello");
  }
  std::vector<std::string> log() {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }

  TempDir root_;
  const std::string path_ = root_.path() + "/tp/w0.sock";
  Moments moments_;
  ManualClock clock_;
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, AnswersARequestPerConnectionAndManyOnOne) {
  start();
  for (int i = 0; i < 3; ++i) expect_served();
  RawClient client = connected();
  client.send(frame_of(command("a")) + frame_of(command("b")) + frame_of(command("c")));
  EXPECT_EQ(text_of(client.reply(), "cmd"), "a");
  EXPECT_EQ(text_of(client.reply(), "cmd"), "b");
  EXPECT_EQ(text_of(client.reply(), "cmd"), "c");
}

TEST_F(ListenerTest, AnswersAClientThatHasSaidAllItWillSay) {
  start();
  RawClient client = connected();
  client.send(frame_of(command("a")) + frame_of(command("b")));
  client.half_close();
  EXPECT_EQ(text_of(client.reply(), "cmd"), "a");
  EXPECT_EQ(text_of(client.reply(), "cmd"), "b");
  EXPECT_TRUE(client.ended());
}

TEST_F(ListenerTest, SaysHowFarAStalledFrameCame) {
  start();
  const std::string frame = frame_of(command("slow"));
  RawClient client = connected();
  client.send(frame.substr(0, 2));
  moments_.await("listener.read.header", 1, std::nullopt, 2);
  client.send(frame.substr(2, 2));
  moments_.await("listener.read.body", 1, std::nullopt, 0);
  client.send(frame.substr(4));
  EXPECT_EQ(text_of(client.reply(), "cmd"), "slow");
}

TEST_F(ListenerTest, AStalledClientDelaysNobody) {
  start();
  RawClient silent = connected();
  RawClient stalled = connected();
  stalled.send(frame_of(command("never")).substr(0, 6));
  moments_.await("listener.read.body");
  for (int i = 0; i < 3; ++i) expect_served();
}

TEST_F(ListenerTest, ASlowReaderOfALargeReplyDelaysNobodyAndGetsItWhole) {
  start();
  RawClient slow = connected();
  slow.send(frame_of(command("big")) + frame_of(command("after")));
  moments_.await("listener.reply");
  expect_served();
  const auto big = slow.reply();
  ASSERT_TRUE(big.has_value());
  EXPECT_EQ(find(*big, "bytes")->as_text()->size(), 8u << 20);
  EXPECT_EQ(text_of(slow.reply(), "cmd"), "after");
}

TEST_F(ListenerTest, AnExceptionOfTheHandlerIsAnErrorReply) {
  start();
  RawClient client = connected();
  client.send(command("throw"));
  auto reply = client.reply();
  EXPECT_EQ(text_of(reply, "status"), "error");
  EXPECT_EQ(text_of(reply, "error_type"), "operation_failed");
  EXPECT_THAT(text_of(reply, "message"), HasSubstr("handler says no"));
  client.send(command("throw a number"));
  EXPECT_THAT(text_of(client.reply(), "message"), HasSubstr("unknown type"));
  client.send(command("fail"));
  EXPECT_EQ(text_of(client.reply(), "error_type"), "map_quarantined");
  client.send(command("unsendable"));
  EXPECT_EQ(text_of(client.reply(), "status"), "error");
  EXPECT_EQ(moments_.count("listener.dispatch"), moments_.count("listener.handler.end"));
}

TEST_F(ListenerTest, BytesThatAreNoRequestGetAnErrorAndAnEnd) {
  start(/*max_body=*/1000);
  using std::string_literals::operator""s;
  for (const std::string& bytes : {"\x00\x00\x03\xe9"s, "\x80\x00\x00\x00"s, "\xff\xff\xff\xff"s,
                                   *encode_frame("no pickle"), *encode_frame("")}) {
    RawClient client = connected();
    client.send(bytes);
    const auto reply = client.reply();
    EXPECT_EQ(text_of(reply, "status"), "error");
    EXPECT_EQ(text_of(reply, "error_type"), "operation_failed");
    EXPECT_TRUE(client.ended());
  }
  // A good frame before it is still answered.
  RawClient client = connected();
  client.send(frame_of(command("good")) + "\xff\xff\xff\xff");
  EXPECT_EQ(text_of(client.reply(), "cmd"), "good");
  EXPECT_EQ(text_of(client.reply(), "status"), "error");
  EXPECT_TRUE(client.ended());
  expect_served();
}

TEST_F(ListenerTest, ARequestWithoutACommandReachesTheHandlerAsSuch) {
  start();
  RawClient client = connected();
  client.send(Message{{"offsets", 1}});
  EXPECT_EQ(text_of(client.reply(), "cmd"), "(none)");
}

TEST_F(ListenerTest, RecordedHostileBodiesAreRefusedAndTheListenerLives) {
  start();
  std::ifstream file(KVDRILL_SOURCE_DIR "/kvcore/testdata/pickle-hostile.jsonl");
  if (!file) GTEST_SKIP() << "no recorded bodies here";
  int tried = 0;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json["bytes_hex"].is_string()) continue;  // described, not stored
    const std::string hex = json["bytes_hex"];
    std::string body;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      body.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    RawClient client = connected();
    client.send(*encode_frame(body));
    EXPECT_EQ(text_of(client.reply(), "status"), "error") << line;
    ++tried;
  }
  EXPECT_GT(tried, 0);
  expect_served();
}

TEST_F(ListenerTest, APeerThatIsGoneBeforeItsReplyEndsOnlyItsConnection) {
  start();
  for (const std::string& bytes : {*encode_frame("no pickle"), frame_of(command("x"))}) {
    moments_.hold("listener.reply");
    const auto before = moments_.count("listener.reply");
    RawClient client = connected();
    client.send(bytes);
    moments_.await("listener.reply", before + 1);
    client.close();
    moments_.open("listener.reply");
    expect_served();
  }
}

TEST_F(ListenerTest, AFrameCutOffByItsPeerIsForgotten) {
  start();
  RawClient client = connected();
  client.send(frame_of(command("half")).substr(0, 7));
  moments_.await("listener.read.body");
  client.close();
  expect_served();
  EXPECT_EQ(moments_.count("listener.dispatch"), 1u);
}

TEST_F(ListenerTest, NoDescriptorLeftTurnsClientsAwayAndServesTheOthers) {
  start();
  RawClient early = connected();
  moments_.await("listener.accepted");
  // The client needs one descriptor of its own; the limit then leaves none for the listener.
  RawClient late;
  const int probe = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(probe);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(probe) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  EXPECT_EQ(late.connect(path_), 0);
  EXPECT_TRUE(late.ended());  // at once, not after somebody has left
  early.send(command("still there"));
  EXPECT_EQ(text_of(early.reply(), "cmd"), "still there");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_served();
  EXPECT_THAT(log(), ::testing::ElementsAre(HasSubstr("clients are turned away")));
}

TEST_F(ListenerTest, AnErrorOfAcceptPausesAcceptingUntilTheClockHasMoved) {
  start();
  RawClient early = connected();
  moments_.await("listener.accepted");
  moments_.fail("listener.accept", EPERM);
  RawClient late = connected();
  moments_.await("clock.wait", 1, "listener.accept.retry");
  early.send(command("still there"));  // wakes the pause; the next attempt fails again
  EXPECT_EQ(text_of(early.reply(), "cmd"), "still there");
  moments_.await("clock.wait", 2, "listener.accept.retry");
  moments_.fail("listener.accept", 0);
  clock_.set(Time(std::chrono::milliseconds(100)));
  late.send(command("late"));
  EXPECT_EQ(text_of(late.reply(), "cmd"), "late");
}

TEST_F(ListenerTest, AClientOfAnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  start();
  // The directory keeps others out; for this test it does not.
  ASSERT_EQ(::chmod(root_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((root_.path() + "/tp").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    for (int i = 0; i < 2000; ++i) {
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        ::_exit(3);
      }
      char byte = 0;
      if (::recv(fd, &byte, 1, 0) > 0) ::_exit(4);
      ::close(fd);
    }
    ::_exit(0);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
  EXPECT_EQ(moments_.count("listener.accepted"), 0u);
  expect_served();
  // However often they come, they fill no log.
  EXPECT_EQ(log().size(), std::size_t{PeerLog::kLines});
  EXPECT_EQ(listener_->stop(Nanos::max()), StopResult::kDone);
  listener_.reset();
  EXPECT_EQ(log().back(), "listener.test: 1990 such lines were left out");
}

TEST_F(ListenerTest, RefusedRequestsFillNoLog) {
  std::atomic<int> infos{0};
  ListenerOptions options;
  options.socket_root = root_.path();
  options.socket_path = path_;
  auto started = Listener::start(options, &ListenerTest::handle, clock_,
                                 [&infos](Severity, std::string_view) { ++infos; });
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  for (int i = 0; i < 100; ++i) {
    RawClient client = connected();
    client.send(std::string("\0\0\0\1x", 5));
    EXPECT_EQ(text_of(client.reply(), "status"), "error");
    EXPECT_TRUE(client.ended());
  }
  EXPECT_EQ(infos.load(), PeerLog::kLines);
  started->reset();
  EXPECT_EQ(infos.load(), PeerLog::kLines + 1);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnAllocator = true;
#else
constexpr bool kOwnAllocator = false;
#endif

std::int64_t resident_pages() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

// Eight connections stay open after a large request and after a large reply: neither their buffers
// nor what the allocator had for the work stays in memory.
TEST_F(ListenerTest, TheMemoryOfLargeBodiesGoesBack) {
  if (kOwnAllocator) GTEST_SKIP() << "a sanitizer keeps freed memory for itself";
  start();
  std::vector<RawClient> clients(8);
  const std::string large = frame_of({{"cmd", "hello"}, {"text", std::string(15u << 20, 'x')}});
  const auto ask = [](RawClient& client, std::string_view name) {
    client.send(command(name));
    return text_of(client.reply(), "cmd");
  };
  const std::int64_t before = resident_pages();
  for (RawClient& client : clients) {
    ASSERT_EQ(client.connect(path_), 0);
    client.send(large);
    EXPECT_EQ(text_of(client.reply(), "cmd"), "hello");
    EXPECT_EQ(ask(client, "small"), "small");
  }
  EXPECT_LT(resident_pages() - before, (8 << 20) / 4096);
  for (RawClient& client : clients) {
    EXPECT_EQ(ask(client, "big"), "big");
    EXPECT_EQ(ask(client, "small"), "small");
  }
  EXPECT_LT(resident_pages() - before, (8 << 20) / 4096);
}

TEST_F(ListenerTest, ALongCommandsNameIsNotCopiedIntoItsNotes) {
  start();
  RawClient client = connected();
  client.send(command(std::string(1u << 20, 'x')));
  EXPECT_EQ(text_of(client.reply(), "cmd").size(), std::size_t{1u << 20});
  for (const auto& seen : moments_.seen()) EXPECT_LE(seen.text.size(), 128u) << seen.name;
}

TEST_F(ListenerTest, ADescriptorThatAForkedChildKeepsDoesNotConfuseIt) {
  start();
  RawClient client = connected();
  moments_.await("listener.read.header");
  int until_done[2];
  ASSERT_EQ(::pipe2(until_done, O_CLOEXEC), 0);
  const pid_t child = ::fork();  // it has a copy of the accepted connection
  if (child == 0) {
    ::close(until_done[1]);
    char byte = 0;
    [[maybe_unused]] const auto n = ::read(until_done[0], &byte, 1);
    ::_exit(0);
  }
  ::close(until_done[0]);
  client.send("\xff\xff\xff\xff");  // ends the connection here, with an error
  EXPECT_EQ(text_of(client.reply(), "status"), "error");
  client.send("more");  // arrives at the child's copy only
  for (int i = 0; i < 3; ++i) expect_served();
  ::close(until_done[1]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(ListenerTest, NamesItsThread) {
  start();
  expect_served();
  const auto seen = moments_.seen();
  const auto label = std::find_if(seen.begin(), seen.end(),
                                  [](const auto& s) { return s.name == "thread.label"; });
  ASSERT_NE(label, seen.end());
  EXPECT_EQ(label->text, "listener.test");
}

}  // namespace
}  // namespace kv
