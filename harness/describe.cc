#include "harness/describe.h"

#include "harness/process.h"

namespace kv::drill {

tl::expected<std::string, std::string> describe(
    const std::string& program, int limit_ms,
    const std::map<std::string, std::string>& environment) {
  return output_of(program, {"--describe"}, environment, limit_ms);
}

}  // namespace kv::drill
