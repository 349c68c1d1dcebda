#include "harness/cli/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "harness/base/json.h"
#include "harness/board/kvdrill.h"

namespace kv::drill {
namespace {

using Names = std::vector<std::string>;

// A list of texts, or of objects with a "name" (commands also say what they do).
tl::expected<Names, std::string> names(const Json& json, const char* key) {
  const auto list = json.find(key);
  if (list == json.end()) return tl::unexpected(fmt::format("\"{}\" is missing", key));
  if (!list->is_array()) return tl::unexpected(fmt::format("\"{}\" is no list", key));
  Names all;
  for (const Json& item : *list) {
    const Json* name = &item;
    if (item.is_object() && item.contains("name")) name = &item["name"];
    if (!name->is_string() || name->get_ref<const std::string&>().empty()) {
      return tl::unexpected(fmt::format("an entry of \"{}\" has no name", key));
    }
    all.push_back(name->get<std::string>());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// A name that means two kinds of moment could not be checked.
std::string twice_named(const Engine& engine) {
  std::map<std::string, const char*> kinds;
  const std::array<std::pair<const char*, const Names*>, 4> lists{{{"points", &engine.points},
                                                                   {"faults", &engine.faults},
                                                                   {"steps", &engine.steps},
                                                                   {"notes", &engine.notes}}};
  for (const auto& [kind, list] : lists) {
    for (const std::string& name : *list) {
      const auto [known, fresh] = kinds.emplace(name, kind);
      if (!fresh) {
        return fmt::format("\"{}\" is among {} and {}, expected one kind for a name", name,
                           known->second, kind);
      }
    }
  }
  return {};
}

}  // namespace

tl::expected<Engine, std::string> engine_from_json(const std::string& path, std::string_view text) {
  const Json json = try_parse_json(text);
  if (!json.is_object()) {
    return tl::unexpected(
        std::string("the output is no JSON object, expected the description of "
                    "an engine"));
  }
  const auto contract = json.find("contract");
  if (contract == json.end() || !contract->is_number_integer()) {
    return tl::unexpected(std::string("\"contract\" is missing, expected the contract's version"));
  }
  if (contract->get<std::int64_t>() != KVDRILL_CONTRACT_VERSION) {
    return tl::unexpected(fmt::format("contract {}, expected {}", contract->get<std::int64_t>(),
                                      KVDRILL_CONTRACT_VERSION));
  }
  Engine engine;
  engine.path = path;
  const std::array<std::pair<const char*, Names*>, 6> lists{{{"roles", &engine.roles},
                                                             {"points", &engine.points},
                                                             {"faults", &engine.faults},
                                                             {"steps", &engine.steps},
                                                             {"notes", &engine.notes},
                                                             {"commands", &engine.commands}}};
  for (const auto& [key, list] : lists) {
    auto read = names(json, key);
    if (!read) return tl::unexpected(read.error());
    *list = *std::move(read);
  }
  if (engine.roles.empty()) return tl::unexpected(std::string("\"roles\" is empty"));
  if (auto twice = twice_named(engine); !twice.empty()) return tl::unexpected(std::move(twice));
  return engine;
}

}  // namespace kv::drill
