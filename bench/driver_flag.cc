#include "bench/driver_flag.h"

#include <stdlib.h>

#include <string_view>

namespace kv::bench {

std::string parse_driver(int* argc, char** argv) {
  constexpr std::string_view kFlag = "--driver=";
  std::string path = KVDRILL_BUILD_DIR "/card/libcuda.so.1";
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kFlag)) {
      path = argument.substr(kFlag.size());
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread is there yet
  ::unsetenv("KVDRILL_CARD");
  ::setenv("KVDRILL_CARD_DEVICES", "1", 1);
  ::setenv("KVDRILL_CARD_BYTES", std::to_string(std::size_t{1} << 30).c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
  return path;
}

}  // namespace kv::bench
