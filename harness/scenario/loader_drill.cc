#include "harness/scenario/loader_drill.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

#include "harness/scenario/names.h"
#include "harness/scenario/units.h"

namespace kv::drill {
namespace {

constexpr std::int64_t kMostDevices = 16;
constexpr std::int64_t kSmallestCard = std::int64_t{2} << 20;  // a page
constexpr std::int64_t kLargestCard = std::int64_t{4} << 40;   // what the fake card takes
constexpr std::int64_t kLargestRoot = std::int64_t{1} << 30;
constexpr std::int64_t kFewestDescriptors = 16;  // with fewer the loader cannot open its libraries
constexpr std::int64_t kMostRanks = 1024;
constexpr std::size_t kLongestIpc = 64;
constexpr std::int64_t kFewestEvents = 256, kMostEvents = std::int64_t{1} << 22;
constexpr std::int64_t kLongestDeadline = 3'600'000'000'000;
constexpr std::size_t kLongestProcessName = 47;  // what the card's ledger has room for

class DrillReader {
 public:
  DrillReader(const Source& source, Faults& faults) : source_(source), faults_(faults) {}

  LoadedDrill read(const Variant& variant) {
    LoadedDrill loaded;
    loaded.values = variant.values;
    const Node table = substitute(variant.drill, variant.values, loaded.used, faults_);
    const Node processes = substitute(variant.processes, variant.values, loaded.used, faults_);
    Drill& drill = loaded.drill;
    drill.arm = variant.arm;
    drill.position = {source_.file, variant.place.line, variant.place.column};
    Fields fields(table, "in [drill]", faults_);
    settings(fields, drill);
    for (const Entry& entry : processes.table) {
      drill.processes.push_back(process(entry, drill.devices));
    }
    if (processes.table.size() > kMostStarts) {
      faults_.add(processes.table[kMostStarts].key_place,
                  fmt::format("{} processes, expected at most {}: the board has no place for more",
                              processes.table.size(), kMostStarts));
    }
    if (drill.processes.empty() && variant.processes.place.line != 0) {
      faults_.add(variant.processes.place, "[processes] is empty, expected worker = {role = ...}");
    }
    steps(fields, loaded);
    return loaded;
  }

 private:
  void settings(Fields& fields, Drill& drill) {
    drill.manual_clock = fields.word("clock", {"manual", "real"}).value_or("manual") == "manual";
    if (const auto deadline = fields.duration("deadline")) {
      drill.deadline_ns = *deadline;
      if (*deadline == 0 || *deadline > kLongestDeadline) {
        faults_.add(*fields.find("deadline"), "deadline is out of range, expected up to \"1h\"");
      }
    }
    if (const auto events = fields.integer("events", kFewestEvents, kMostEvents)) {
      drill.events = static_cast<std::uint32_t>(*events);
    }
    if (const Node* card = fields.table("card")) read_card(*card, drill);
    if (const auto bytes = fields.bytes("small_root")) {
      drill.small_root = bytes;
      if (*bytes == 0 || *bytes > kLargestRoot) {
        faults_.add(*fields.find("small_root"),
                    fmt::format("a root of {}, expected up to {}", show_bytes(*bytes),
                                show_bytes(kLargestRoot)));
      }
    }
    if (const Node* waive = fields.list("waive")) read_waivers(*waive, drill);
    drill.not_under = read_not_under(fields, faults_);
    read_expectation(fields, drill);
  }

  void read_card(const Node& node, Drill& drill) {
    Fields card(node, "in card", faults_);
    drill.devices =
        static_cast<int>(card.integer("devices", 1, kMostDevices).value_or(drill.devices));
    if (const auto bytes = card.bytes("bytes")) {
      if (*bytes < kSmallestCard || *bytes > kLargestCard) {
        faults_.add(*card.find("bytes"),
                    fmt::format("a card of {}, expected {} to {}", show_bytes(*bytes),
                                show_bytes(kSmallestCard), show_bytes(kLargestCard)));
      }
      drill.device_bytes = *bytes;
    }
    card.finish();
  }

  void read_waivers(const Node& list, Drill& drill) {
    for (const Node& item : list.list) {
      if (!expect_kind(item, Node::Kind::kTable, "an entry of waive", faults_)) continue;
      Fields fields(item, "in waive", faults_);
      const auto reason = fields.required_text("reason", "why the check is not wanted here");
      if (fields.require("check", listed(source_.language.checks)) != nullptr) {
        if (const auto check = fields.word("check", source_.language.checks)) {
          const bool twice =
              std::any_of(drill.waived.begin(), drill.waived.end(),
                          [&](const Waiver& other) { return other.check == *check; });
          if (twice) {
            faults_.add(*fields.find("check"), fmt::format("{} is waived twice, expected one "
                                                           "waiver",
                                                           *check));
          }
          drill.waived.push_back({*check, reason.value_or("")});
        }
      }
      fields.finish();
    }
  }

  void read_expectation(Fields& fields, Drill& drill) {
    const bool fails = fields.word("expect", {"pass", "fail"}).value_or("pass") == "fail";
    const auto reason = fields.text("reason");
    if (fails && reason.value_or("").empty()) {
      faults_.add(*fields.find("expect"),
                  "expect = \"fail\" without a reason, expected reason = \"why it fails\"");
    }
    if (reason && !fails && drill.not_under.empty()) {
      faults_.add(*fields.find("reason"),
                  "a reason for nothing, expected expect = \"fail\" or not_under with it");
    }
    if (fails) drill.expect_fail = reason.value_or("");
    if (!drill.not_under.empty()) drill.not_under_reason = reason.value_or("");
  }

  void check_process_name(const Entry& entry) {
    const std::string& name = entry.key;
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
    });
    if (!plain) {
      faults_.add(entry.key_place, fmt::format("\"{}\" is no name of a process, expected letters, "
                                               "digits, \"_\" and \"-\"",
                                               name));
    } else if (name.size() > kLongestProcessName) {
      faults_.add(entry.key_place,
                  fmt::format("the process's name has {} characters, expected at most {}",
                              name.size(), kLongestProcessName));
    } else if (name == "supervisor" || name == "run") {
      faults_.add(entry.key_place,
                  fmt::format("\"{}\" is a name of the harness, expected another", name));
    }
  }

  ProcessSpec process(const Entry& entry, int devices) {
    ProcessSpec spec;
    spec.name = entry.key;
    spec.position = {source_.file, entry.key_place.line, entry.key_place.column};
    check_process_name(entry);
    if (!expect_kind(entry.value, Node::Kind::kTable, entry.key, faults_)) return spec;
    Fields fields(entry.value, "in process " + entry.key, faults_);
    if (const auto role = fields.required_text("role", listed(source_.engine.roles))) {
      spec.role = *role;
      if (std::find(source_.engine.roles.begin(), source_.engine.roles.end(), *role) ==
          source_.engine.roles.end()) {
        faults_.add(*fields.find("role"), fmt::format("unknown role \"{}\"{}", *role,
                                                      expected_one(*role, source_.engine.roles)));
      }
    }
    spec.rank = fields.integer("rank", 0, kMostRanks).value_or(0);
    spec.stage = fields.integer("stage", 0, kMostRanks).value_or(0);
    spec.device = fields.integer("device", 0, kMostDevices - 1).value_or(0);
    if (spec.device >= devices) {
      faults_.add(*fields.find("device"),
                  fmt::format("device = {}, but the card has {}, expected card = {{devices = {}}}",
                              spec.device, devices == 1 ? "one device" : std::to_string(devices),
                              spec.device + 1));
    }
    spec.ipc = read_ipc(fields);
    spec.arguments = fields.texts("arguments").value_or(std::vector<std::string>());
    for (const std::string& argument : spec.arguments) {
      refuse_nul(*fields.find("arguments"), argument, "an argument");
    }
    if (const Node* environment = fields.table("environment")) {
      for (const Entry& variable : environment->table) add_variable(variable, spec);
    }
    if (const Node* limits = fields.table("limits")) read_limits(*limits, spec);
    fields.finish();
    return spec;
  }

  void read_limits(const Node& node, ProcessSpec& spec) {
    Fields limits(node, "in limits", faults_);
    if (const auto most = limits.integer("descriptors", kFewestDescriptors, INT32_MAX)) {
      spec.limits[RLIMIT_NOFILE] = static_cast<std::uint64_t>(*most);
    }
    for (const auto& [key, resource] :
         {std::pair{"address_space", RLIMIT_AS}, std::pair{"file_size", RLIMIT_FSIZE},
          std::pair{"core", RLIMIT_CORE}}) {
      if (const auto most = limits.bytes(key)) {
        spec.limits[resource] = static_cast<std::uint64_t>(*most);
      }
    }
    limits.finish();
    if (node.table.empty()) {
      faults_.add(node, "limits is empty, expected descriptors, address_space, file_size or core");
    }
  }

  // What programs get from the kernel ends at the first NUL.
  void refuse_nul(const Node& where, const std::string& text, const std::string& what) {
    if (text.find('\0') == std::string::npos) return;
    faults_.add(where, what + " holds a NUL, which no program is given, expected text without");
  }

  // It becomes part of paths of sockets and segments.
  std::string read_ipc(Fields& fields) {
    std::string ipc = fields.text("ipc").value_or("");
    const bool fits =
        ipc.size() <= kLongestIpc && ipc.find_first_not_of(
                                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789_-") == std::string::npos;
    if (fits) return ipc;
    faults_.add(*fields.find("ipc"),
                fmt::format("ipc = \"{}\", expected at most {} letters, digits, \"_\" or \"-\"",
                            ipc, kLongestIpc));
    return {};
  }

  void add_variable(const Entry& variable, ProcessSpec& spec) {
    if (!expect_kind(variable.value, Node::Kind::kText, variable.key, faults_)) return;
    if (variable.key == "KVDRILL_BOARD" || variable.key == "KVDRILL_PROCESS") {
      faults_.add(variable.key_place,
                  fmt::format("{} is the harness's, expected another variable", variable.key));
    } else if (variable.key.empty() || variable.key.find('=') != std::string::npos) {
      faults_.add(variable.key_place, fmt::format("\"{}\" is no name of a variable, expected one "
                                                  "without \"=\"",
                                                  variable.key));
    }
    refuse_nul(variable.value, variable.key + variable.value.text, "a variable");
    spec.environment[variable.key] = variable.value.text;
  }

  void steps(Fields& fields, LoadedDrill& loaded) {
    const Node* list = fields.list("steps");
    if (list == nullptr) return;
    if (list->list.empty()) faults_.add(*list, "steps is empty, expected at least one step");
    const World world{source_.engine, source_.language, loaded.drill.processes,
                      loaded.drill.manual_clock, source_.file};
    const std::vector<Draft> drafts = read_steps(*list, world, faults_);
    Flow flow(world, faults_);
    flow.check(drafts);
    loaded.drill.steps = finished(drafts);
    loaded.started = flow.started();
    loaded.ids = flow.ids();
  }

  const Source& source_;
  Faults& faults_;
};

}  // namespace

std::vector<std::string> read_not_under(Fields& fields, Faults& faults) {
  static const std::vector<std::string> kSanitizers = {"asan", "tsan"};
  const auto names = fields.texts("not_under");
  if (!names) return {};
  const Node& list = *fields.find("not_under");
  if (list.list.empty()) faults.add(list, "not_under is empty, expected \"asan\" or \"tsan\"");
  for (const Node& item : list.list) {
    if (item.is(Node::Kind::kText) &&
        std::find(kSanitizers.begin(), kSanitizers.end(), item.text) == kSanitizers.end()) {
      faults.add(item, fmt::format("unknown sanitizer \"{}\"{}", item.text,
                                   expected_one(item.text, kSanitizers)));
    }
  }
  return *names;
}

LoadedDrill read_drill(const Variant& variant, const Source& source, Faults& faults) {
  return DrillReader(source, faults).read(variant);
}

}  // namespace kv::drill
