// Log lines that somebody else can cause: a client, another user, a tool at a shared record. They
// come at a bounded rate, so that nobody fills a disk or takes a thread with them: at most kLines
// in kWindow of the clock; what comes beyond is counted, and the next line, or the end, tells the
// count. One for each kind of line, so that a flood of one hides no other.
//
// Threads: say() from any thread. Ownership: borrows the clock.
#ifndef KVCORE_BASE_PEER_LOG_H_
#define KVCORE_BASE_PEER_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kvcore/base/clock.h"
#include "kvcore/base/log.h"
#include "kvcore/base/thread_annotations.h"

namespace kv {

class PeerLog {
 public:
  static constexpr int kLines = 10;
  static constexpr Nanos kWindow = std::chrono::seconds(10);

  // `prefix` stands before every line. An empty sink drops all.
  PeerLog(const Clock& clock, LogSink sink, std::string prefix);
  ~PeerLog();  // tells what was left out last
  PeerLog(const PeerLog&) = delete;
  PeerLog& operator=(const PeerLog&) = delete;

  // Control characters are written as '?': what is quoted cannot begin a line of its own.
  void say(Severity severity, std::string_view line) KV_EXCLUDES(mutex_);

 private:
  const Clock& clock_;
  const LogSink sink_;
  const std::string prefix_;
  Mutex mutex_;
  Time window_ KV_GUARDED_BY(mutex_);
  int lines_ KV_GUARDED_BY(mutex_) = 0;                     // in this window
  std::int64_t left_out_ KV_GUARDED_BY(mutex_) = 0;         // since the last line
  Severity worst_ KV_GUARDED_BY(mutex_) = Severity::kInfo;  // of those
};

}  // namespace kv

#endif  // KVCORE_BASE_PEER_LOG_H_
