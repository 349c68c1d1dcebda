#include "harness/scenario/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "harness/scenario/loader_drill.h"
#include "harness/scenario/names.h"
#include "harness/scenario/scenario_fields.h"
#include "harness/scenario/toml_document.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;

class ScenarioReader {
 public:
  ScenarioReader(std::string_view file, const Engine& engine, const Language& language)
      : file_(file), engine_(engine), language_(language) {}

  tl::expected<Scenario, std::vector<LoadError>> read(const Node& root) {
    Fields fields(root, "at the top of the file", faults_);
    head(fields);
    const std::vector<Variant> variants = read_variants(fields, faults_);
    std::vector<LoadedDrill> drills = read_drills(variants);
    read_proofs(fields, {engine_, language_, file_}, drills, faults_);
    fields.finish();
    unused_parameters(variants, drills);
    unused_processes(drills);
    if (!faults_.empty()) return tl::unexpected(faults_.sorted(file_));
    for (LoadedDrill& loaded : drills) {
      loaded.drill.scenario = scenario_.name;
      scenario_.drills.push_back(std::move(loaded.drill));
    }
    return std::move(scenario_);
  }

 private:
  void head(Fields& fields) {
    scenario_.file = file_;
    scenario_.name = fields.required_text("name", "the scenario's name").value_or("");
    scenario_.about = fields.required_text("about", "what it shows, in a sentence").value_or("");
    scenario_.cases = fields.texts("cases").value_or(std::vector<std::string>());
  }

  std::vector<LoadedDrill> read_drills(const std::vector<Variant>& variants) {
    std::vector<LoadedDrill> drills;
    for (const Variant& variant : variants) {
      Faults found;
      drills.push_back(read_drill(variant, {engine_, language_, file_}, found));
      // What the base has already is said once; what only an arm has, with its name.
      faults_.merge(found, variant.arm.empty() ? "" : fmt::format(" [in arm \"{}\"]", variant.arm));
    }
    return drills;
  }

  void unused_parameters(const std::vector<Variant>& variants,
                         const std::vector<LoadedDrill>& drills) {
    std::set<std::string> used;
    for (const LoadedDrill& drill : drills) used.insert(drill.used.begin(), drill.used.end());
    for (const auto& [name, value] : variants.front().values) {
      if (used.count(name) == 0) {
        faults_.add(value->place, fmt::format("parameter {0} is never used, expected \"${0}\" in a "
                                              "step",
                                              name));
      }
    }
    for (std::size_t i = 0; i < variants.size(); ++i) {
      for (const auto& [name, place] : variants[i].set) {
        if (used.count(name) != 0 && drills[i].used.count(name) == 0) {
          faults_.add(place, fmt::format("parameter {0} is never used in arm \"{1}\", expected "
                                         "\"${0}\" in its steps",
                                         name, variants[i].arm));
        }
      }
    }
  }

  void unused_processes(const std::vector<LoadedDrill>& drills) {
    if (!faults_.empty()) return;
    std::set<std::string> started;
    for (const LoadedDrill& drill : drills) {
      started.insert(drill.started.begin(), drill.started.end());
    }
    for (const LoadedDrill& drill : drills) {
      for (const ProcessSpec& process : drill.drill.processes) {
        if (started.count(process.name) != 0) continue;
        faults_.add({process.position.line, process.position.column},
                    fmt::format("process {0} is never started, expected {{start = \"{0}\"}}",
                                process.name));
      }
    }
  }

  const std::string file_;
  const Engine& engine_;
  const Language& language_;
  Faults faults_;
  Scenario scenario_;
};

bool is_scenario(const fs::path& path) {
  return path.extension() == ".toml";
}

}  // namespace

tl::expected<Scenario, std::vector<LoadError>> load_scenario(std::string_view file,
                                                             std::string_view text,
                                                             const Engine& engine,
                                                             const Language& language) {
  const auto root = parse_toml(text);
  if (!root) {
    const TomlError& error = root.error();
    const Position position{std::string(file), error.place.line, error.place.column};
    return tl::unexpected(std::vector<LoadError>{{position, error.message}});
  }
  return ScenarioReader(file, engine, language).read(*root);
}

tl::expected<std::vector<std::string>, LoadError> find_scenarios(
    const std::vector<std::string>& paths) {
  std::set<std::string> found;
  const auto fault = [](const std::string& path, std::string message) {
    return tl::unexpected(LoadError{{path, 0, 0}, std::move(message)});
  };
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      return fault(path, "no such file or folder, expected a scenario or a folder with *.toml");
    }
    if (!fs::is_directory(status)) {
      found.insert(path);
      continue;
    }
    bool any = false;
    fs::recursive_directory_iterator each(path, error);
    for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
      if (!is_scenario(each->path()) || each->is_directory()) continue;
      found.insert(each->path().string());
      any = true;
    }
    if (error) return fault(path, error.message() + ", expected a folder that can be read");
    if (!any) return fault(path, "no scenario below it, expected *.toml");
  }
  return std::vector<std::string>(found.begin(), found.end());
}

}  // namespace kv::drill
