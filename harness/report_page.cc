// The page of a run: one file, no network, readable without scripts.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/report.h"

namespace kv::drill {
namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --line: #d9dee3; --paper: #fff;
  --pass: #1a7f37; --fail: #cf222e; --void: #9a6700; --skip: #5b6570; --bar: #b6c7d9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa4ae; --line: #333a41;
  --paper: #14181c; --pass: #4ac26b; --fail: #ff7b72; --void: #d4a72c; --bar: #3b5068; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1160px; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p.sum { color: var(--soft); margin: 0 0 1rem; } code, .why { font-family: ui-monospace, monospace;
  font-size: .86em; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .32rem .6rem .32rem 0; border-top: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; border-top: 0; } td.ms { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; width: 9rem; }
td.v { width: 4rem; font-weight: 600; } .pass { color: var(--pass); } .fail, .error { color: var(--fail); }
.void { color: var(--void); } .skip { color: var(--skip); } .arm { padding-left: 1.2rem; }
.bar { display: inline-block; height: .55rem; background: var(--bar); margin-right: .5rem; }
.why { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0; } summary { cursor: pointer; }
)css";

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

std::string checks_of(const DrillResult& result) {
  std::string out;
  for (const CheckResult& check : result.checks) {
    out += fmt::format("<div class=\"why\"><b class=\"{0}\">{0}</b> {1}{2}{3}</div>",
                       verdict_name(check.verdict), escaped(check.name),
                       check.why.empty() ? "" : ": ", escaped(check.why));
  }
  if (!result.repeat.empty()) {
    out += fmt::format("<div class=\"why\">repeat: {}</div>", escaped(result.repeat));
  }
  if (!result.folder.empty()) {
    out += fmt::format(
        "<div class=\"why\">folder: <a href=\"file://{0}\">{0}</a>, "
        "<a href=\"file://{0}/timeline.html\">timeline</a></div>",
        escaped(result.folder));
  }
  return out;
}

std::string drills_table(const PageInput& input) {
  std::int64_t slowest = 0;
  for (const DrillResult& result : input.results) slowest = std::max(slowest, result.ms);
  std::string out = "<table><tr><th>verdict</th><th>drill</th><th></th></tr>\n";
  std::string file;
  for (const DrillResult& result : input.results) {
    if (result.file != file) {
      file = result.file;
      out += fmt::format("<tr><td colspan=\"3\"><code>{}</code></td></tr>\n", escaped(file));
    }
    const bool open = result.verdict > Verdict::kSkip;
    out += fmt::format("<tr>{}<td{}><details{}><summary>{}</summary>{}</details></td>{}</tr>\n",
                       verdict_cell(result.verdict), result.arm.empty() ? "" : " class=\"arm\"",
                       open ? " open" : "", escaped(result.arm.empty() ? result.name : result.arm),
                       checks_of(result), time_cell(result.ms, slowest));
  }
  return out + "</table>\n";
}

std::string proofs_table(const PageInput& input) {
  std::int64_t slowest = 0;
  for (const ProofResult& proof : input.proofs) slowest = std::max(slowest, proof.ms);
  std::string out =
      "<table><tr><th>verdict</th><th>drill, without</th><th>fails exactly</th><th></th></tr>\n";
  for (const ProofResult& proof : input.proofs) {
    out += fmt::format(
        "<tr>{}<td>{}<br><code>{}</code></td><td>{}{}</td>{}</tr>\n", verdict_cell(proof.verdict),
        escaped(proof.scenario), escaped(fmt::format("{}", fmt::join(proof.skip, ", "))),
        escaped(fmt::format("{}", fmt::join(proof.fails, ", "))),
        proof.why.empty() ? "" : "<div class=\"why\">" + escaped(proof.why) + "</div>",
        time_cell(proof.ms, slowest));
  }
  return out + "</table>\n";
}

}  // namespace

std::string index_html(const PageInput& input) {
  Totals totals;
  for (const DrillResult& result : input.results) totals.add(result.verdict);
  for (const ProofResult& proof : input.proofs) totals.add(proof.verdict);
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width\"><title>kvdrill</title>\n<style>";
  out += kStyle;
  out += "</style></head><body>\n";
  out += fmt::format("<h1>kvdrill: {}</h1>\n<p class=\"sum\">{}<br><code>{}</code></p>\n",
                     totals.exit_code() == 0 ? "all passed" : "not all passed",
                     escaped(last_line(totals, input.ns)), escaped(input.command));
  if (!input.results.empty()) out += "<h2>Drills</h2>\n" + drills_table(input);
  if (!input.proofs.empty()) out += "<h2>Proofs</h2>\n" + proofs_table(input);
  return out + "</body></html>\n";
}

}  // namespace kv::drill
