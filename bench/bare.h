// The floor that the wire is measured against: the least that a process can do to answer a message
// on a fresh unix connection, and the least that a client can do to ask. Both know the bytes
// beforehand; neither looks at them.
//
// Threads: a BareServer answers on a thread of its own; clients are functions of the caller's.
// Ownership: a BareServer owns its socket file and its thread.
#ifndef BENCH_BARE_H_
#define BENCH_BARE_H_

#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kv::bench {

// A directory of its own, removed with all that is in it.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// accept, read as many bytes as the request has, write the reply, close; again and again.
class BareServer {
 public:
  BareServer(const std::string& path, std::string request, std::string reply);
  ~BareServer();
  BareServer(const BareServer&) = delete;
  BareServer& operator=(const BareServer&) = delete;
  bool listening() const { return fd_ >= 0; }

 private:
  void serve();

  int fd_ = -1;
  std::string request_, reply_;
  std::thread thread_;
};

// Where client and servers run. Left to the scheduler, the same program lands on one core in one
// window and on two in the next, and an exchange costs four times as much there: what is compared
// must run in the same place.
enum class Place {
  kTogether,  // all on one core: what the processor has to do
  kApart,     // the client on one core, the servers on another: what the client waits for
};
// The calling thread, and those that it starts from now on. False: there is no second core.
bool run_servers_at(Place place);
bool run_client_at(Place place);

// socket, connect, write, read as many bytes as the reply has, close. False: any of them failed.
bool bare_exchange(const std::string& path, std::string_view request, std::size_t reply_size);
// The same to several at once: all are asked before the first reply is read.
bool bare_broadcast(const std::vector<std::string>& paths, std::string_view request,
                    std::size_t reply_size);

}  // namespace kv::bench

#endif  // BENCH_BARE_H_
