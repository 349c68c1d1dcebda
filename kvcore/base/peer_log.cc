#include "kvcore/base/peer_log.h"

#include <algorithm>
#include <utility>

namespace kv {

PeerLog::PeerLog(const Clock& clock, LogSink sink, std::string prefix)
    : clock_(clock), sink_(std::move(sink)), prefix_(std::move(prefix)), window_(clock.now()) {}

PeerLog::~PeerLog() {
  const MutexLock lock(mutex_);
  if (left_out_ == 0) return;
  sink_(worst_, prefix_ + std::to_string(left_out_) + " such lines were left out");
}

void PeerLog::say(Severity severity, std::string_view line) {
  if (!sink_) return;
  const MutexLock lock(mutex_);
  if (const Time now = clock_.now(); now - window_ >= kWindow) {
    window_ = now;
    lines_ = 0;
  }
  if (lines_ == kLines) {
    worst_ = left_out_ == 0 ? severity : std::max(worst_, severity);
    ++left_out_;
    return;
  }
  ++lines_;
  std::string text = prefix_ + std::string(line);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  if (left_out_ > 0) text += " (" + std::to_string(left_out_) + " such lines were left out)";
  left_out_ = 0;
  if (lines_ == kLines) text += " (more of them are only counted for a while)";
  sink_(severity, text);
}

}  // namespace kv
