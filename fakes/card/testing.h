// What the card's tests share: a card of their own on disk, and further processes that use it.
//
// Threads: the test's one thread; a process is forked only while there is no other.
// Ownership: folders and processes go with their objects.
#ifndef FAKES_CARD_TESTING_H_
#define FAKES_CARD_TESTING_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "fakes/card/ledger.h"
#include "fakes/card/probes/probe.h"

namespace kv::card {

inline const std::string kLibrary = KVDRILL_BUILD_DIR "/card/libcuda.so.1";

// Only while the test has one thread.
// NOLINTBEGIN(concurrency-mt-unsafe)
inline void set_variable(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
}
inline void unset_variable(const char* name) {
  ::unsetenv(name);
}
// NOLINTEND(concurrency-mt-unsafe)

// A folder for a card, named in the environment of all processes started from here on.
class CardFolder {
 public:
  explicit CardFolder(std::uint64_t bytes = std::uint64_t{64} << 20, int devices = 1) {
    std::string name = std::filesystem::temp_directory_path() / "kvcard-XXXXXX";
    path_ = ::mkdtemp(name.data());
    set_variable("KVDRILL_CARD", path_);
    set_variable("KVDRILL_CARD_BYTES", std::to_string(bytes));
    set_variable("KVDRILL_CARD_DEVICES", std::to_string(devices));
  }
  ~CardFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CardFolder(const CardFolder&) = delete;
  CardFolder& operator=(const CardFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // The ledger as it is on disk, for reading; the mapping stays to the end of the test program.
  const LedgerFile& ledger() const {
    const int fd = ::open(file("ledger").c_str(), O_RDONLY | O_CLOEXEC);
    void* mapping = ::mmap(nullptr, sizeof(LedgerFile), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    EXPECT_NE(mapping, MAP_FAILED);
    return *static_cast<const LedgerFile*>(mapping);
  }

 private:
  std::string path_;
};

// A process forked from the test. It runs `body`, which talks to the test over a socket, and ends
// with 0, or 1 when an expectation in it failed. It is killed at the end of the object's life.
class Process {
 public:
  using Body = std::function<void(const Driver& driver, const Partner& test)>;
  explicit Process(const Body& body) {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    partner_.socket = ends[0];
    partner_.pid = ::fork();
    if (partner_.pid == 0) {
      ::close(ends[0]);
      body(load_driver(kLibrary), Partner{-1, ends[1]});
      std::exit(testing::Test::HasFailure() ? 1 : 0);  // NOLINT(concurrency-mt-unsafe)
    }
    ::close(ends[1]);
  }
  ~Process() {
    if (partner_.pid > 0) partner_.kill();
    ::close(partner_.socket);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const Partner& partner() const { return partner_; }
  std::string receive() const { return partner_.receive(); }
  std::string ask(const std::string& what) const { return partner_.ask(what); }
  void kill() {
    partner_.kill();
    partner_.pid = -1;
  }
  // Waits for its end: "exit 0", "signal 11", ...
  std::string end() {
    int status = 0;
    while (::waitpid(partner_.pid, &status, 0) < 0 && errno == EINTR) {
    }
    partner_.pid = -1;
    return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                               : "exit " + std::to_string(WEXITSTATUS(status));
  }

 private:
  Partner partner_;
};

// In a process of its own: what a call answered, as a number for the test.
inline std::string code_of(CUresult code) {
  return std::to_string(static_cast<unsigned>(code));
}

}  // namespace kv::card

#endif  // FAKES_CARD_TESTING_H_
