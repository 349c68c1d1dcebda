// Where a worker's listener has its socket: the place that engines already deployed look in, below
// a root that is configuration (theirs is always /tmp).
//
// Threads: functions of their arguments. Ownership: values; nothing is made on disk here.
// Source of the rules: the public protocol of such engines; samples are in
// testdata/socket-dirs.jsonl.
#ifndef KVCORE_WIRE_SOCKET_PLACE_H_
#define KVCORE_WIRE_SOCKET_PLACE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "kvcore/base/status.h"
#include "kvcore/base/unique_fd.h"

namespace kv {

// Bytes that a unix socket's path may have, its end not counted (unix(7)).
inline constexpr std::size_t kSocketPathLimit = 107;
// Characters of an IPC name.
inline constexpr std::size_t kIpcNameLimit = 64;

struct SocketPlace {
  std::string directory;        // <root>/kvcached-tp-<ipc>-<h>, shared by all ranks and stages
  std::string stage_directory;  // the socket's own: `directory`, or pp<stage> in it from stage 1 on
  std::string path;             // <stage_directory>/w<rank>.sock
};

// The path without what changes nothing in it: slashes that follow a slash or end it, and parts
// that are ".". Nothing is looked at on disk, so ".." and links stay as they are.
std::string tidy_path(std::string_view path);

// The place of one worker, below the tidy root. <h> is the first 8 hex digits of the version-5 UUID
// of `ipc_name` in the DNS namespace. kInvalidArgument: a name that sanitize_ipc_name() would
// change or an empty one, a negative rank or stage, an empty root, a path over kSocketPathLimit.
Result<SocketPlace> socket_place(std::string_view root, std::string_view ipc_name, int rank,
                                 int stage = 0);

// The name with each character outside letters, digits, '_' and '-' (ASCII) replaced by '-', cut
// at kIpcNameLimit characters. A character of several UTF-8 bytes becomes one '-'.
std::string sanitize_ipc_name(std::string_view name);

// A connection to a listening unix socket, which is made at once or not at all; non-blocking.
// kInvalidArgument: no path, or one over kSocketPathLimit. kUnavailable: nobody listens there, or
// the listener's queue is full. kSystem: there is no socket to be had.
Result<UniqueFd> connect_socket(const std::string& path);

}  // namespace kv

#endif  // KVCORE_WIRE_SOCKET_PLACE_H_
