#include "harness/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "harness/base/json.h"

namespace kv::drill {
namespace {

constexpr std::string_view kJunitHead =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"kvdrill\"";

std::string word(Verdict verdict, bool color) {
  const std::string_view name = verdict_name(verdict);
  if (!color) return fmt::format("{:<5}", name);
  const int code = verdict == Verdict::kPass ? 32 : verdict == Verdict::kSkip ? 33 : 31;
  return fmt::format("\x1b[{}m{:<5}\x1b[0m", code, name);
}

std::string place(const Position& position) {
  if (position.file.empty()) return {};
  return fmt::format("{}:{}:{}", position.file, position.line, position.column);
}

// Bytes that are not UTF-8 come from engines and peers: they are shown, never thrown on.
std::string dump(const Json& json, int indent) {
  return dump_json(json, indent);
}

// Whatever engines and files say comes through here, so that no terminal takes it for an order.
void indent_into(std::string* out, std::string_view raw) {
  const std::string text = printable(raw);
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    std::string line = text.substr(from, to - from);
    // A line that begins so is an order to GitHub's runner, indented or not.
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos && line.compare(begin, 2, "::") == 0) {
      line.replace(begin, 1, "\\x3a");
    }
    *out += fmt::format("         {}\n", line);
    from = to + 1;
  }
}

Json json_of(const DrillResult& result) {
  Json checks = Json::array();
  for (const CheckResult& check : result.checks) {
    checks.push_back(
        {{"name", check.name}, {"verdict", verdict_name(check.verdict)}, {"why", check.why}});
  }
  Json processes = Json::array();
  for (const ProcessResult& process : result.processes) {
    processes.push_back(
        {{"name", process.name},
         {"exit", process.exit < 0 ? Json(nullptr) : Json(process.exit)},
         {"signal", process.core_signal.empty() ? Json(nullptr) : Json(process.core_signal)}});
  }
  return {{"name", result.name},
          {"file", result.file},
          {"verdict", verdict_name(result.verdict)},
          {"ms", result.ms},
          {"checks", checks},
          {"processes", processes},
          {"folder", result.folder},
          {"note", result.note},
          {"runs", result.runs},
          {"passed_runs", result.runs - result.failures}};
}

std::string passed_of(const DrillResult& result) {
  return fmt::format("passed {} of {}", result.runs - result.failures, result.runs);
}

std::string reasons(const DrillResult& result) {
  std::string all;
  if (result.runs > 1) all = passed_of(result) + "\n";
  for (const CheckResult& check : result.checks) {
    if (check.verdict == Verdict::kPass || check.verdict == Verdict::kNotJudged) continue;
    all += fmt::format("{}: {}\n", check.name, check.why);
  }
  return all;
}

// ", 100 of 100"; nothing for a single run.
std::string as_it_says(const ProofResult& proof) {
  return proof.runs < 2 ? std::string()
                        : fmt::format(", {} of {}", proof.runs - proof.missed, proof.runs);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML 1.0 has no place for other control characters, not even escaped.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

void Totals::add(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      ++passed;
      break;
    case Verdict::kNotJudged:  // a check's, and never a whole run's
    case Verdict::kSkip:
      ++skipped;
      break;
    case Verdict::kVoid:
      ++voided;
      break;
    case Verdict::kFail:
      ++failed;
      break;
    case Verdict::kError:
      ++errors;
      break;
  }
}

int Totals::exit_code() const {
  if (errors > 0) return 4;
  if (failed > 0) return 1;
  if (voided > 0) return 3;
  return 0;
}

std::string drill_lines(const DrillResult& result, bool color) {
  std::string out = fmt::format("  {}  {:<58} {:>6} ms", word(result.verdict, color),
                                one_line(result.name), result.ms);
  if (result.runs > 1) {
    out += "  " + passed_of(result);
  }
  if (const std::string words = not_judged_words(result); !words.empty()) {
    out += "  " + one_line(words);
  }
  out += '\n';
  if (result.verdict == Verdict::kPass) {
    if (!result.note.empty()) indent_into(&out, "(" + result.note + ")");
    return out;
  }
  for (const CheckResult& check : result.checks) {
    if (check.verdict == Verdict::kPass) continue;
    indent_into(&out, fmt::format("{}: {}{}", check.name, verdict_name(check.verdict),
                                  check.why.empty() ? "" : ": " + check.why));
    if (!place(check.position).empty()) indent_into(&out, "  at " + place(check.position));
  }
  if (!result.folder.empty()) indent_into(&out, "folder: " + result.folder);
  if (!result.repeat.empty()) indent_into(&out, "repeat: " + result.repeat);
  return out;
}

std::string proof_lines(const ProofResult& result, bool color) {
  std::string out = fmt::format("  {}  {} without {}\n", word(result.verdict, color),
                                one_line(result.scenario), fmt::join(result.skip, " and "));
  if (result.verdict == Verdict::kPass) {
    indent_into(&out, fmt::format("fails exactly{}: {}", as_it_says(result),
                                  fmt::join(result.fails, ", ")));
    return out;
  }
  indent_into(&out, result.why);
  if (result.runs > 1) indent_into(&out, "failed as it says" + as_it_says(result));
  indent_into(&out, "  at " + place(result.position));
  if (!result.folder.empty()) indent_into(&out, "folder: " + result.folder);
  if (!result.repeat.empty()) indent_into(&out, "repeat: " + result.repeat);
  return out;
}

std::string last_line(const Totals& totals, std::int64_t ns) {
  return fmt::format("{} passed, {} failed, {} void, {} skipped, {} in {:.2f} s\n", totals.passed,
                     totals.failed, totals.voided, totals.skipped, counted(totals.errors, "error"),
                     static_cast<double>(ns) / 1e9);
}

std::string run_json(const std::vector<DrillResult>& results, const Totals& totals,
                     bool interrupted) {
  Json scenarios = Json::array();
  for (const DrillResult& result : results) scenarios.push_back(json_of(result));
  Json all = {{"scenarios", scenarios}, {"passed", totals.passed},   {"failed", totals.failed},
              {"void", totals.voided},  {"skipped", totals.skipped}, {"errors", totals.errors}};
  if (interrupted) all["interrupted"] = true;
  return dump(all, 1) + "\n";
}

std::string prove_json(const std::vector<ProofResult>& proofs, std::size_t steps,
                       const std::optional<std::vector<std::string>>& surviving) {
  Json list = Json::array();
  for (const ProofResult& proof : proofs) {
    list.push_back({{"scenario", proof.scenario},
                    {"skip", proof.skip},
                    {"fails", proof.fails},
                    {"verdict", verdict_name(proof.verdict)},
                    {"why", proof.why},
                    {"runs", proof.runs},
                    {"failed_exactly", proof.runs - proof.missed}});
  }
  return dump({{"proofs", list},
               {"steps", steps},
               {"surviving", surviving ? Json(*surviving) : Json(nullptr)}},
              1) +
         "\n";
}

std::string junit(const std::vector<DrillResult>& results, std::int64_t ns) {
  Totals totals;
  for (const DrillResult& result : results) {
    totals.add(result.verdict);
    totals.skipped += not_judged_in(result).size();
  }
  std::string out(kJunitHead);
  // A void run is not a pass, and JUnit has no word of its own for it: it counts as an error.
  out += fmt::format(
      " tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n", totals.all(),
      totals.failed, totals.errors + totals.voided, totals.skipped, static_cast<double>(ns) / 1e9);
  for (const DrillResult& result : results) {
    out += fmt::format("<testcase classname=\"{}\" name=\"{}\" file=\"{}\" time=\"{:.3f}\">",
                       escaped(result.file), escaped(result.name), escaped(result.file),
                       static_cast<double>(result.ns) / 1e9);
    const std::string why = escaped(reasons(result));
    const std::string detail = escaped(result.repeat.empty() ? "" : "repeat: " + result.repeat);
    switch (result.verdict) {
      case Verdict::kPass:
        break;
      case Verdict::kNotJudged:
      case Verdict::kSkip:
        out += fmt::format("<skipped message=\"{}\"/>", why);
        break;
      case Verdict::kFail:
        out += fmt::format("<failure message=\"{}\">{}</failure>", why, detail);
        break;
      case Verdict::kVoid:
        out += fmt::format("<error type=\"void\" message=\"{}\">{}</error>", why, detail);
        break;
      case Verdict::kError:
        out += fmt::format("<error type=\"harness\" message=\"{}\">{}</error>", why, detail);
        break;
    }
    out += "</testcase>\n";
    // A test of its own, as nothing else in JUnit says of a part of a test that it did not run.
    for (const CheckResult& check : result.checks) {
      if (check.verdict != Verdict::kNotJudged) continue;
      out += fmt::format(
          "<testcase classname=\"{}\" name=\"{}: {}\" file=\"{}\" time=\"0\"><skipped "
          "message=\"not judged: {}\"/></testcase>\n",
          escaped(result.file), escaped(result.name), escaped(check.name), escaped(result.file),
          escaped(check.why));
    }
  }
  return out + "</testsuite>\n</testsuites>\n";
}

bool is_junit(std::string_view text) {
  return text.starts_with(kJunitHead);
}

}  // namespace kv::drill
