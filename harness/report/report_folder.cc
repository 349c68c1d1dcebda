#include "harness/report/report_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>

#include "harness/base/files.h"
#include "harness/base/json.h"

namespace kv::drill {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDrills = "/drills.json";
constexpr const char* kProofs = "/proofs.json";
constexpr const char* kPage = "/index.html";
constexpr std::size_t kMostRead = std::size_t{1} << 30;

Json to_object(const PartOrigin& origin) {
  return {
      {"command", origin.command}, {"when", origin.when}, {"base", origin.base}, {"ns", origin.ns}};
}

PartOrigin origin_in(const Json& json) {
  return {json.at("command").get<std::string>(), json.at("when").get<std::string>(),
          json.at("base").get<std::string>(), json.at("ns").get<std::int64_t>()};
}

Json to_object(const ProofResult& proof) {
  return {{"scenario", proof.scenario},
          {"file", proof.file},
          {"skip", proof.skip},
          {"fails", proof.fails},
          {"why", proof.why},
          {"ms", proof.ms},
          {"runs", proof.runs},
          {"missed", proof.missed},
          {"folder", proof.folder},
          {"repeat", proof.repeat},
          {"verdict", std::string(verdict_name(proof.verdict))}};
}

ProofResult proof_in(const Json& json) {
  ProofResult proof;
  json.at("scenario").get_to(proof.scenario);
  json.at("file").get_to(proof.file);
  json.at("skip").get_to(proof.skip);
  json.at("fails").get_to(proof.fails);
  json.at("why").get_to(proof.why);
  json.at("ms").get_to(proof.ms);
  json.at("runs").get_to(proof.runs);
  json.at("missed").get_to(proof.missed);
  json.at("folder").get_to(proof.folder);
  json.at("repeat").get_to(proof.repeat);
  const auto name = json.at("verdict").get<std::string>();
  const auto verdict = verdict_by_name(name);
  if (!verdict) throw Json::other_error::create(501, "unknown verdict '" + name + "'", &json);
  proof.verdict = *verdict;
  return proof;
}

std::string text_of(const Json& json) {
  return dump_json(json, 1) + "\n";
}

// Nothing: there is no such file, or, with a note, one that is no part of a report.
template <typename Part>
std::optional<Part> kept(const std::string& path,
                         tl::expected<Part, std::string> (*read)(std::string_view),
                         std::vector<std::string>* notes) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  auto part = read_file(path, kMostRead).and_then(read);
  if (part) return *std::move(part);
  notes->push_back(fmt::format("{}: left out of the page: {}", path, part.error()));
  return std::nullopt;
}

// A pipe would be waited for, and whatever else is there is not ours.
std::string in_the_way(const std::string& path, bool (*ours)(std::string_view)) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    return fmt::format("cannot write {}: not a regular file", path);
  }
  return why_not_replaced(path, ours);
}

// A part, of this version or another.
bool is_part(std::string_view text) {
  const Json json = try_parse_json(text);
  const auto origin = json.is_object() ? json.find("origin") : json.end();
  if (!json.is_object() || origin == json.end() || !origin->is_object()) return false;
  const auto command = origin->find("command");
  return command != origin->end() && command->is_string() &&
         command->get_ref<const std::string&>().starts_with("kvdrill ");
}

bool write(const std::string& path, std::string_view text, bool (*ours)(std::string_view),
           std::string* why) {
  *why = in_the_way(path, ours);
  return why->empty() && write_file(path, text, ours, why);
}

bool write_page(const std::string& folder, const PageInput& page, std::string* why) {
  return write(folder + kPage, index_html(page), is_index_html, why);
}

}  // namespace

std::string drills_to_json(const DrillsPart& part) {
  Json results = Json::array();
  for (const DrillResult& result : part.results) {
    results.push_back(parse_json(result_to_json(result)));
  }
  return text_of({{"origin", to_object(part.origin)}, {"drills", results}});
}

std::string proofs_to_json(const ProofsPart& part) {
  Json results = Json::array();
  for (const ProofResult& result : part.results) results.push_back(to_object(result));
  return text_of({{"origin", to_object(part.origin)}, {"proofs", results}});
}

tl::expected<DrillsPart, std::string> drills_from_json(std::string_view text) {
  try {
    const Json json = parse_json(text);
    DrillsPart part{origin_in(json.at("origin")), {}};
    for (const Json& one : json.at("drills")) {
      auto result = result_from_json(dump_json(one));
      if (!result) return tl::unexpected(result.error());
      part.results.push_back(*std::move(result));
    }
    return part;
  } catch (const Json::exception& error) {
    return tl::unexpected(std::string("not a run's part of a report: ") + error.what());
  }
}

tl::expected<ProofsPart, std::string> proofs_from_json(std::string_view text) {
  try {
    const Json json = parse_json(text);
    ProofsPart part{origin_in(json.at("origin")), {}};
    for (const Json& one : json.at("proofs")) part.results.push_back(proof_in(one));
    return part;
  } catch (const Json::exception& error) {
    return tl::unexpected(std::string("not the proofs' part of a report: ") + error.what());
  }
}

std::string why_no_report(const std::string& folder, bool of_proofs) {
  std::string why = in_the_way(folder + kPage, is_index_html);
  return why.empty() ? in_the_way(folder + (of_proofs ? kProofs : kDrills), is_part) : why;
}

bool report_drills(const std::string& folder, const DrillsPart& part,
                   std::vector<std::string>* notes, std::string* why) {
  if (!write(folder + kDrills, drills_to_json(part), is_part, why)) return false;
  return write_page(folder, {part, kept(folder + kProofs, proofs_from_json, notes)}, why);
}

bool report_proofs(const std::string& folder, const ProofsPart& part,
                   std::vector<std::string>* notes, std::string* why) {
  if (!write(folder + kProofs, proofs_to_json(part), is_part, why)) return false;
  return write_page(folder, {kept(folder + kDrills, drills_from_json, notes), part}, why);
}

PartOrigin part_origin(std::string command, std::int64_t ns) {
  std::error_code error;
  return {std::move(command), fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(std::time(nullptr))),
          fs::current_path(error).string(), ns};
}

}  // namespace kv::drill
