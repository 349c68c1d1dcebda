#include "harness/base/json.h"

namespace kv::drill {

Json parse_json(std::string_view text) {
  return Json::parse(text);
}

Json try_parse_json(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kv::drill
