// Where kvcore's sentences go: a sink that the owner of the engine passes in. There is no global
// logger and nothing is written to a stream from here.
//
// Threads: a sink is called from any thread, also from several at once.
#ifndef KVCORE_BASE_LOG_H_
#define KVCORE_BASE_LOG_H_

#include <cstdint>
#include <functional>
#include <string_view>

namespace kv {

enum class Severity : std::uint8_t { kInfo, kWarning, kError };

// Must not throw and must not call back into the object that logs. An empty sink drops the line.
using LogSink = std::function<void(Severity, std::string_view line)>;

}  // namespace kv

#endif  // KVCORE_BASE_LOG_H_
