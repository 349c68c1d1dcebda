#include "harness/verdict/verdict.h"

#include <algorithm>
#include <array>
#include <utility>
#include "harness/base/json.h"

namespace kv::drill {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"pass", "not judged", "skip",
                                                    "void", "fail",       "error"};

Json to_object(const CheckResult& check) {
  Json object = {{"name", check.name},
                 {"verdict", std::string(verdict_name(check.verdict))},
                 {"why", check.why}};
  if (check.position.line > 0) {
    object["position"] = {{"file", check.position.file},
                          {"line", check.position.line},
                          {"column", check.position.column}};
  }
  return object;
}

// The verdict of an object; an exception of the library's kind when it is none of the known ones.
Verdict verdict_in(const Json& object) {
  const auto name = object.at("verdict").get<std::string>();
  const auto verdict = verdict_by_name(name);
  if (!verdict) throw Json::other_error::create(501, "unknown verdict '" + name + "'", &object);
  return *verdict;
}

CheckResult check_in(const Json& object) {
  CheckResult check;
  check.name = object.at("name").get<std::string>();
  check.verdict = verdict_in(object);
  check.why = object.at("why").get<std::string>();
  if (const auto at = object.find("position"); at != object.end()) {
    check.position = {at->at("file").get<std::string>(), at->at("line").get<int>(),
                      at->at("column").get<int>()};
  }
  return check;
}

ProcessResult process_in(const Json& object) {
  return {object.at("name").get<std::string>(), object.at("exit").get<int>(),
          object.at("signal").get<int>(), object.at("core_signal").get<std::string>(),
          object.at("ready").get<bool>()};
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  const auto index = static_cast<std::size_t>(verdict);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::optional<Verdict> verdict_by_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Verdict>(i);
  }
  return std::nullopt;
}

Verdict worst_of(const std::vector<CheckResult>& checks) {
  Verdict worst = Verdict::kPass;
  for (const CheckResult& check : checks) {
    if (check.verdict != Verdict::kNotJudged) worst = std::max(worst, check.verdict);
  }
  return worst;
}

std::vector<std::string> not_judged_in(const DrillResult& result) {
  std::vector<std::string> names;
  for (const CheckResult& check : result.checks) {
    if (check.verdict == Verdict::kNotJudged) names.push_back(check.name);
  }
  return names;
}

std::string result_to_json(const DrillResult& result) {
  Json checks = Json::array();
  for (const CheckResult& check : result.checks) checks.push_back(to_object(check));
  Json processes = Json::array();
  for (const ProcessResult& process : result.processes) {
    processes.push_back({{"name", process.name},
                         {"exit", process.exit},
                         {"signal", process.signal},
                         {"core_signal", process.core_signal},
                         {"ready", process.ready}});
  }
  const Json object = {{"name", result.name},
                       {"file", result.file},
                       {"arm", result.arm},
                       {"verdict", std::string(verdict_name(result.verdict))},
                       {"ms", result.ms},
                       {"ns", result.ns},
                       {"checks", std::move(checks)},
                       {"processes", std::move(processes)},
                       {"folder", result.folder},
                       {"repeat", result.repeat},
                       {"note", result.note},
                       {"runs", result.runs},
                       {"failures", result.failures}};
  // What engines wrote may be no UTF-8: it must not cost the verdict.
  return dump_json(object);
}

tl::expected<DrillResult, std::string> result_from_json(std::string_view text) {
  try {
    const Json object = parse_json(text);
    DrillResult result;
    result.name = object.at("name").get<std::string>();
    result.file = object.at("file").get<std::string>();
    result.arm = object.at("arm").get<std::string>();
    result.verdict = verdict_in(object);
    result.ms = object.at("ms").get<std::int64_t>();
    result.ns = object.at("ns").get<std::int64_t>();
    for (const Json& check : object.at("checks")) result.checks.push_back(check_in(check));
    for (const Json& process : object.at("processes")) {
      result.processes.push_back(process_in(process));
    }
    result.folder = object.at("folder").get<std::string>();
    result.repeat = object.at("repeat").get<std::string>();
    result.note = object.at("note").get<std::string>();
    result.runs = object.at("runs").get<std::uint64_t>();
    result.failures = object.at("failures").get<std::uint64_t>();
    return result;
  } catch (const Json::exception& error) {
    return tl::unexpected(std::string("not a drill's result: ") + error.what());
  }
}

}  // namespace kv::drill
