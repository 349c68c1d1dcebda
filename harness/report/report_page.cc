// The page of a run: one file, no network, readable without scripts.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "harness/report/report.h"
#include "harness/report/web_page.h"

namespace kv::drill {
namespace {

std::string verdict_cell(Verdict verdict) {
  return fmt::format("<td class=\"v {0}\">{0}</td>", verdict_name(verdict));
}

// The time as a number and as a bar against the slowest run of the page.
std::string time_cell(std::int64_t ms, std::int64_t slowest) {
  const double part = slowest > 0 ? static_cast<double>(ms) / static_cast<double>(slowest) : 0;
  return fmt::format(
      "<td class=\"ms\"><span class=\"bar\" style=\"width:{:.0f}px\"></span>{} ms</td>", part * 70,
      ms);
}

std::string link(const std::string& target, std::string_view text) {
  return fmt::format("<a href=\"{}\">{}</a>", escaped(target), escaped(text));
}

std::string file_link(const std::string& base, const std::string& file, int line = 0) {
  const std::string path = file.starts_with("/") ? file : base + "/" + file;
  return link("file://" + path, line > 0 ? fmt::format("{}:{}", file, line) : file);
}

// What is under a run or a proof that did not go as it should.
std::string folder_of(const std::string& folder, const std::string& repeat) {
  std::string out;
  if (!repeat.empty()) out += fmt::format("<div class=\"why\">repeat: {}</div>", escaped(repeat));
  if (!folder.empty()) {
    out += fmt::format("<div class=\"why\">folder: {}, {}</div>", link("file://" + folder, folder),
                       link("file://" + folder + "/timeline.html", "timeline"));
  }
  return out;
}

std::string checks_of(const DrillResult& result) {
  std::string out;
  for (const CheckResult& check : result.checks) {
    out += fmt::format("<div class=\"why\"><b class=\"{0}\">{0}</b> {1}{2}{3}</div>",
                       verdict_name(check.verdict), escaped(check.name),
                       check.why.empty() ? "" : ": ", escaped(check.why));
  }
  return out + folder_of(result.folder, result.repeat);
}

// "197 of 200 passed"; empty for a single run.
std::string count_of(std::uint64_t good, std::uint64_t runs, std::string_view what) {
  if (runs < 2) return {};
  return fmt::format(" <span class=\"n\">{} of {} {}</span>", good, runs, what);
}

std::string words_of_not_judged(const DrillResult& result) {
  const std::string words = not_judged_words(result);
  return words.empty() ? words : fmt::format(" <span class=\"n judged\">{}</span>", escaped(words));
}

std::string origin_of(const PartOrigin& origin, const std::vector<Verdict>& verdicts) {
  Totals totals;
  for (const Verdict verdict : verdicts) totals.add(verdict);
  return fmt::format("<p class=\"sum\">{}<br><code>{}</code>, {}</p>\n",
                     escaped(last_line(totals, origin.ns)), escaped(origin.command),
                     escaped(origin.when));
}

// The drills' proofs by name, for the way from a drill to them.
using ProofNumbers = std::map<std::string, std::vector<std::size_t>>;

ProofNumbers numbers_of(const PageInput& input) {
  ProofNumbers numbers;
  for (std::size_t i = 0; input.proofs && i < input.proofs->results.size(); ++i) {
    numbers[input.proofs->results[i].scenario].push_back(i);
  }
  return numbers;
}

std::string to_proofs(const ProofNumbers& numbers, const PageInput& input,
                      const std::string& drill) {
  const auto found = numbers.find(drill);
  if (found == numbers.end()) return {};
  std::string out = " <span class=\"n\">proofs";
  for (const std::size_t i : found->second) {
    const Verdict verdict = input.proofs->results[i].verdict;
    out += fmt::format(
        " <a class=\"{0}\" href=\"#proof-{1}\" title=\"{2}\">{0}</a>", verdict_name(verdict), i,
        escaped(fmt::format("without {}", fmt::join(input.proofs->results[i].skip, " and "))));
  }
  return out + "</span>";
}

std::string drills_table(const PageInput& input) {
  const DrillsPart& part = *input.drills;
  const ProofNumbers numbers = numbers_of(input);
  std::int64_t slowest = 0;
  for (const DrillResult& result : part.results) slowest = std::max(slowest, result.ms);
  std::string out = "<table><tr><th>verdict</th><th>drill</th><th></th></tr>\n";
  std::string file;
  for (const DrillResult& result : part.results) {
    if (result.file != file) {
      file = result.file;
      out += fmt::format("<tr><td colspan=\"3\"><code>{}</code></td></tr>\n",
                         file_link(part.origin.base, file));
    }
    const bool open = result.verdict > Verdict::kSkip;
    out += fmt::format("<tr>{}<td{}><details{}><summary>{}{}{}</summary>{}</details></td>{}</tr>\n",
                       verdict_cell(result.verdict), result.arm.empty() ? "" : " class=\"arm\"",
                       open ? " open" : "", escaped(result.arm.empty() ? result.name : result.arm),
                       count_of(result.runs - result.failures, result.runs, "passed") +
                           words_of_not_judged(result),
                       to_proofs(numbers, input, result.name), checks_of(result),
                       time_cell(result.ms, slowest));
  }
  return out + "</table>\n";
}

std::string proofs_table(const ProofsPart& part) {
  std::int64_t slowest = 0;
  for (const ProofResult& proof : part.results) slowest = std::max(slowest, proof.ms);
  std::string out =
      "<table><tr><th>verdict</th><th>drill, without</th><th>fails exactly</th><th></th></tr>\n";
  for (std::size_t i = 0; i < part.results.size(); ++i) {
    const ProofResult& proof = part.results[i];
    const bool bad = proof.verdict > Verdict::kSkip;
    out += fmt::format(
        "<tr id=\"proof-{}\">{}<td>{}<br><code>{}</code></td><td>{}{}{}{}</td>{}</tr>\n", i,
        verdict_cell(proof.verdict), escaped(proof.scenario),
        escaped(fmt::format("{}", fmt::join(proof.skip, ", "))),
        escaped(fmt::format("{}", fmt::join(proof.fails, ", "))),
        count_of(proof.runs - proof.missed, proof.runs, "times"),
        proof.why.empty() ? "" : "<div class=\"why\">" + escaped(proof.why) + "</div>",
        bad ? folder_of(proof.folder, proof.repeat) : "", time_cell(proof.ms, slowest));
  }
  return out + "</table>\n";
}

}  // namespace

bool is_index_html(std::string_view text) {
  const std::string_view page = web_file("page.html");
  return text.starts_with(page.substr(0, page.find("<link")));  // styles are inside what is written
}

std::string index_html(const PageInput& input) {
  std::vector<Verdict> drills, proofs;
  for (std::size_t i = 0; input.drills && i < input.drills->results.size(); ++i) {
    drills.push_back(input.drills->results[i].verdict);
  }
  for (std::size_t i = 0; input.proofs && i < input.proofs->results.size(); ++i) {
    proofs.push_back(input.proofs->results[i].verdict);
  }
  Totals totals;
  for (const auto* verdicts : {&drills, &proofs}) {
    for (const Verdict verdict : *verdicts) totals.add(verdict);
  }
  std::string out = fmt::format("<h1>kvdrill: {}</h1>\n",
                                totals.exit_code() == 0 ? "all passed" : "not all passed");
  if (input.drills) {
    out += "<h2>Drills</h2>\n" + origin_of(input.drills->origin, drills) + drills_table(input);
  }
  out += "<h2>Proofs</h2>\n";
  out += input.proofs ? origin_of(input.proofs->origin, proofs) + proofs_table(*input.proofs)
                      : std::string(
                            "<p class=\"sum\">Not run for this page yet: <code>kvdrill prove "
                            "--report</code> with the same folder adds them.</p>\n");
  return web_page("page.html", "report", out);
}

}  // namespace kv::drill
