#include "harness/base/surroundings.h"

#include <unistd.h>

#include <cstdlib>

namespace kv::drill {

Surroundings surroundings_of(const std::function<std::string(const char*)>& value, bool terminal) {
  Surroundings all;
  const bool able = terminal && value("TERM") != "dumb";
  all.color = able && value("NO_COLOR").empty();
  const std::string ci = value("CI");
  all.progress = able && (ci.empty() || ci == "false");
  all.annotations = value("GITHUB_ACTIONS") == "true";
  // The specification of the variable: a path that is not absolute is to be ignored.
  if (const std::string cache = value("XDG_CACHE_HOME"); cache.starts_with('/')) {
    all.cache_folder = cache + "/kvdrill";
  } else if (const std::string home = value("HOME"); home.starts_with('/')) {
    all.cache_folder = home + "/.cache/kvdrill";
  }
  return all;
}

Surroundings look_around() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
    return std::string(text == nullptr ? "" : text);
  };
  return surroundings_of(value, ::isatty(STDOUT_FILENO) == 1);
}

}  // namespace kv::drill
