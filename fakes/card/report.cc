#include "fakes/card/report.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "fakes/card/cuda_abi.h"

namespace kv::card {

void complain(const std::string& message) {
  const std::string line = "kvcard: " + message + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

void die_of_bad_handle(const std::string& reason) {
  complain(reason + "; the real driver dies here by signal 11");
  // A page without rights is certainly not readable, which an invented address need not be.
  void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const volatile char* missing = page == MAP_FAILED ? nullptr : static_cast<const char*>(page);
  for (;;) {
    // A handler that returns (or a sanitizer's) comes back here and dies again.
    [[maybe_unused]] const char never = *missing;
  }
}

}  // namespace kv::card
