// What kvworker is told on its command line: the arguments of the engine contract, and its own.
//
// Threads, ownership: values.
#ifndef FAKES_WORKER_OPTIONS_H_
#define FAKES_WORKER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "kvcore/memory/kv_allocator.h"
#include "kvcore/runtime/runtime.h"

namespace kv::worker {

struct Options {
  std::string name = "worker";
  std::string role = "worker";
  std::string segment_root = "/dev/shm";
  RuntimeConfig runtime;
  KvShape shape{.layers = 2, .buffers = 2, .tensor_bytes = 64u << 20, .page_bytes = 2u << 20};
  // Only a worker has these two.
  bool listener = true;
  bool tensors = true;
  bool framework_caches = true;
};

// False: the process is to end with `*exit_code` (2, or 0 for --help); what is wrong was written to
// standard error.
bool parse_options(int argc, char** argv, Options* options, int* exit_code);

}  // namespace kv::worker

#endif  // FAKES_WORKER_OPTIONS_H_
