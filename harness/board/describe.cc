// What a program says of itself before any drill runs: --describe.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "harness/board/kvdrill.h"
#include "harness/board/session.h"

namespace kv::drill {
namespace {

// Lists of libraries that were loaded later; few, and never taken back.
constexpr std::size_t kMaxLists = 64;
std::array<std::atomic<kvdrill_site*>, kMaxLists> lists;

using Json = nlohmann::ordered_json;

Json describe(const kvdrill_engine& engine) {
  std::array<std::set<std::string>, 4> names;  // by enum kvdrill_kind
  const auto add = [&names](const kvdrill_site* site) {
    for (; site != nullptr; site = site->next) {
      if (site->kind < names.size()) names[site->kind].insert(site->name);
    }
  };
  add(engine.sites);
  for (const auto& list : lists) add(list.load(std::memory_order_acquire));
  std::set<std::string> roles;
  for (const char* const* role = engine.roles; role != nullptr && *role != nullptr; ++role) {
    roles.insert(*role);
  }
  std::map<std::string, std::string> commands;
  for (const kvdrill_command* command = engine.commands;
       command != nullptr && command->name != nullptr; ++command) {
    commands.emplace(command->name, command->about == nullptr ? "" : command->about);
  }
  Json json{{"contract", KVDRILL_CONTRACT_VERSION},
            {"program", engine.program == nullptr ? "" : engine.program},
            {"roles", roles},
            {"points", names[KVDRILL_POINT]},
            {"faults", names[KVDRILL_FAULT]},
            {"steps", names[KVDRILL_STEP]},
            {"notes", names[KVDRILL_NOTE]},
            {"commands", Json::array()}};
  for (const auto& [name, about] : commands) {
    json["commands"].push_back({{"name", name}, {"about", about}});
  }
  return json;
}

}  // namespace

void keep_sites(kvdrill_site* first) {
  for (auto& list : lists) {
    kvdrill_site* present = nullptr;
    if (list.compare_exchange_strong(present, first) || present == first) return;
  }
  complain("kvdrill_add_sites: more than 64 lists; the sites of this one are not described");
}

}  // namespace kv::drill

int kvdrill_described(int argc, char** argv, const kvdrill_engine* engine) {
  if (argc != 2 || std::strcmp(argv[1], "--describe") != 0 || engine == nullptr) return 0;
  using Handler = nlohmann::json::error_handler_t;
  const std::string text =
      kv::drill::describe(*engine).dump(1, ' ', false, Handler::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return 1;
}
