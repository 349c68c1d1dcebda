// What kvdrill's output depends on besides its command line: the terminal and a few variables of
// the environment. The one place of the runner that reads the environment; engines get none of it.
//
// Threads: before other threads exist. Ownership: values.
#ifndef HARNESS_BASE_SURROUNDINGS_H_
#define HARNESS_BASE_SURROUNDINGS_H_

#include <functional>
#include <string>

namespace kv::drill {

struct Surroundings {
  bool color = false;        // a terminal, and neither NO_COLOR nor TERM=dumb
  bool progress = false;     // a terminal on which a line can be rewritten, and no CI
  bool annotations = false;  // GITHUB_ACTIONS: failures are also said in its own way
  std::string cache_folder;  // $XDG_CACHE_HOME/kvdrill or ~/.cache/kvdrill; empty: no home
};

// `value` gives a variable's value, empty when it is not set.
Surroundings surroundings_of(const std::function<std::string(const char*)>& value, bool terminal);

// Those of this process and its standard output.
Surroundings look_around();

}  // namespace kv::drill

#endif  // HARNESS_BASE_SURROUNDINGS_H_
