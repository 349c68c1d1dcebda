// What the tests of listener, registry and runtime share: points that hold, a raw client, a
// directory of their own.
//
// Threads: a Moments may be used from any thread; a RawClient by one at a time.
// Ownership: a Moments arms kvcore's points while it lives; make it before the listener, so that it
// goes after it.
#ifndef KVCORE_LISTENER_LISTENER_TESTING_H_
#define KVCORE_LISTENER_LISTENER_TESTING_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fakes/doubles/test_hooks.h"
#include "kvcore/base/unique_fd.h"
#include "kvcore/wire/frame.h"
#include "kvcore/wire/message.h"
#include "kvcore/wire/pickle.h"

namespace kv::testing {

// Only against a test that hangs; nothing is ordered by it.
inline constexpr auto kHang = std::chrono::seconds(60);

// TestHooks with holds, and waits for what is reached.
class Moments {
 public:
  Moments() {
    hooks_.on_reached([this](const TestHooks::Seen& seen) { reached(seen); });
  }
  ~Moments() { open_all(); }

  TestHooks& hooks() { return hooks_; }
  void skip(const std::string& step) { hooks_.skip(step); }
  void fail(const std::string& fault, int code) { hooks_.fail(fault, code); }

  // The next thread that reaches `name` stands there until open(name).
  void hold(const std::string& name) {
    const std::lock_guard lock(mutex_);
    held_.insert(name);
  }
  void open(const std::string& name) {
    const std::lock_guard lock(mutex_);
    held_.erase(name);
    changed_.notify_all();
  }
  void open_all() {
    const std::lock_guard lock(mutex_);
    held_.clear();
    changed_.notify_all();
  }
  // Every thread that reaches `name` from now on calls this there.
  void at(const std::string& name, std::function<void()> deed) {
    const std::lock_guard lock(mutex_);
    deeds_[name] = std::move(deed);
  }
  // Until `name` (with this text and key, if given) was reached `times` times since the start.
  void await(const std::string& name, std::size_t times = 1,
             std::optional<std::string> text = std::nullopt,
             std::optional<std::int64_t> key = std::nullopt) {
    std::unique_lock lock(mutex_);
    const auto there = [&] {
      std::size_t n = 0;
      for (const auto& seen : seen_) {
        const bool meant = (!text || seen.text == *text) && (!key || seen.key == *key);
        n += seen.name == name && meant ? 1 : 0;
      }
      return n >= times;
    };
    if (!changed_.wait_for(lock, kHang, there)) {
      ADD_FAILURE() << name << " was not reached " << times << " times";
    }
  }
  // Everything that was reached, in its order.
  std::vector<TestHooks::Seen> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  std::size_t count(const std::string& name) { return values(name).size(); }
  // The place of the first (last) occurrence in the order of events; -1: none.
  int first(const std::string& name) {
    const auto all = seen();
    const auto at = std::find_if(all.begin(), all.end(), [&](auto& s) { return s.name == name; });
    return at == all.end() ? -1 : static_cast<int>(at - all.begin());
  }
  int last(const std::string& name) {
    const auto all = seen();
    const auto at = std::find_if(all.rbegin(), all.rend(), [&](auto& s) { return s.name == name; });
    return at == all.rend() ? -1 : static_cast<int>(all.rend() - at) - 1;
  }
  // The values of the notes (the results of the ends) of this name.
  std::vector<std::int64_t> values(const std::string& name) {
    std::vector<std::int64_t> values;
    for (const auto& entry : seen()) {
      if (entry.name == name) values.push_back(entry.value);
    }
    return values;
  }

 private:
  void reached(const TestHooks::Seen& seen) {
    std::unique_lock lock(mutex_);
    seen_.push_back(seen);
    changed_.notify_all();
    if (const auto deed = deeds_.find(seen.name); deed != deeds_.end()) {
      const auto run = deed->second;
      lock.unlock();
      run();
      lock.lock();
    }
    if (!held_.contains(seen.name)) return;
    if (!changed_.wait_for(lock, kHang, [&] { return !held_.contains(seen.name); })) {
      ADD_FAILURE() << "held for ever at " << seen.name;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_;
  std::map<std::string, std::function<void()>> deeds_;
  std::vector<TestHooks::Seen> seen_;
  TestHooks hooks_;
};

class TempDir {
 public:
  TempDir() {
    char pattern[] = "/tmp/kvt-XXXXXX";
    path_ = ::mkdtemp(pattern);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

inline std::string frame_of(const Message& message) {
  return *encode_frame(*encode_pickle(message));
}

class RawClient {
 public:
  // 0, or the errno of the refusal.
  int connect(const std::string& path) {
    fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    return ::connect(fd_.get(), to, sizeof address) == 0 ? 0 : errno;
  }
  // 0, or the errno that ended the sending.
  int send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) return errno;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return 0;
  }
  int send(const Message& message) { return send(frame_of(message)); }
  // The next whole reply; nothing at the connection's end.
  std::optional<Message> reply() {
    while (!reader_.complete()) {
      const auto part = reader_.want();
      const ssize_t n = receive(part->data, part->size);
      if (n <= 0) return std::nullopt;
      EXPECT_TRUE(reader_.got(static_cast<std::size_t>(n)).ok());
    }
    auto message = decode_pickle(reader_.body());
    EXPECT_TRUE(reader_.next().ok());
    EXPECT_TRUE(message.ok()) << message.status().to_string();
    return message.ok() ? std::optional<Message>(*message) : std::nullopt;
  }
  // Waits; true: end or reset, without another byte before it.
  bool ended() {
    char byte = 0;
    return receive(&byte, 1) <= 0;
  }
  // Whether the end is there already; does not wait.
  bool has_ended() {
    char byte = 0;
    return ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN);
  }
  void half_close() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  ssize_t receive(char* to, std::size_t size) {
    pollfd entry{fd_.get(), POLLIN, 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kHang).count();
    if (::poll(&entry, 1, static_cast<int>(limit)) <= 0) {
      ADD_FAILURE() << "neither bytes nor an end came";
      return -1;
    }
    return ::recv(fd_.get(), to, size, 0);
  }

  UniqueFd fd_;
  FrameReader reader_{16u << 20};
};

inline std::string text_of(const std::optional<Message>& message, std::string_view key) {
  if (!message) return "(no message)";
  const Value* value = find(*message, key);
  if (value == nullptr || value->as_text() == nullptr) return "(no text)";
  return *value->as_text();
}

}  // namespace kv::testing

#endif  // KVCORE_LISTENER_LISTENER_TESTING_H_
