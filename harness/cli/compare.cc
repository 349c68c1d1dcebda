#include "harness/cli/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/surroundings.h"
#include "harness/cli/commands.h"
#include "harness/report/report.h"

namespace kv::drill {
namespace {

// Smaller differences of time are noise on any machine.
constexpr std::int64_t kWorthTellingMs = 20;

constexpr std::size_t kMostBytes = std::size_t{256} << 20;

constexpr const char* kExpected =
    "expected what 'kvdrill run --format json' or 'kvdrill prove --format json' prints";

// An exception of the library's kind when it has not the agreed shape.
Judged run_in(const Json& json) {
  Judged run;
  run.name = json.at("name").get<std::string>();
  run.verdict = verdict_by_name(json.at("verdict").get<std::string>()).value();
  run.ms = json.at("ms").get<std::int64_t>();
  DrillResult judged;
  for (const Json& check : json.at("checks")) {
    const auto verdict = verdict_by_name(check.at("verdict").get<std::string>()).value();
    judged.checks.push_back({check.at("name").get<std::string>(), verdict, {}, {}});
    if (!run.why.empty() || verdict <= Verdict::kNotJudged) continue;
    run.why = fmt::format("{}: {}", check.at("name").get<std::string>(),
                          check.at("why").get<std::string>());
  }
  if (const std::string words = not_judged_words(judged); !words.empty()) {
    run.not_judged = ", " + words;
  }
  return run;
}

Judged proof_in(const Json& json) {
  Judged proof;
  proof.name = json.at("scenario").get<std::string>() + " without";
  for (const Json& step : json.at("skip")) proof.name += " " + step.get<std::string>();
  proof.verdict = verdict_by_name(json.at("verdict").get<std::string>()).value();
  proof.why = json.at("why").get<std::string>();
  return proof;
}

bool passes(Verdict verdict) {
  return verdict <= Verdict::kSkip;
}

bool told_apart(std::int64_t a, std::int64_t b) {
  if (a < 0 || b < 0 || std::max(a, b) - std::min(a, b) < kWorthTellingMs) return false;
  return std::max(a, b) >= 2 * std::min(a, b);
}

void sort_in(const Judged& was, const Judged& is, Comparison* all) {
  const Difference difference{was, is};
  if (was.verdict == is.verdict && was.not_judged != is.not_judged) {
    all->changed.push_back(difference);
  } else if (was.verdict == is.verdict) {
    ++all->same;
    if (told_apart(was.ms, is.ms)) all->times.push_back(difference);
  } else if (!passes(is.verdict) && is.verdict > was.verdict) {
    all->worse.push_back(difference);
  } else if (passes(is.verdict) && !passes(was.verdict)) {
    all->mended.push_back(difference);
  } else {
    all->changed.push_back(difference);
  }
}

std::string verdict_or_absent(const Judged& judged) {
  if (judged.name.empty()) return "absent";
  return std::string(verdict_name(judged.verdict)) + judged.not_judged;
}

const std::string& name_of(const Difference& difference) {
  return difference.after.name.empty() ? difference.before.name : difference.after.name;
}

struct Section {
  const char* word;
  const std::vector<Difference>* rows;
  int color;
};
std::array<Section, 5> sections(const Comparison& all) {
  return {{{"worse", &all.worse, 31},
           {"mended", &all.mended, 32},
           {"changed", &all.changed, 33},
           {"appeared", &all.appeared, 0},
           {"vanished", &all.vanished, 0}}};
}

tl::expected<Judgements, std::string> read_judgements(const std::string& path) {
  // Also what comes out of `kvdrill run --format json | kvdrill compare before.json /dev/stdin`.
  const auto text = read_file(path, kMostBytes, /*or_pipe=*/true);
  if (!text) return tl::unexpected(fmt::format("{}: {}, {}", path, text.error(), kExpected));
  auto read = judgements_from_json(*text);
  if (!read) return tl::unexpected(fmt::format("{}: {}", path, read.error()));
  return read;
}

}  // namespace

tl::expected<Judgements, std::string> judgements_from_json(std::string_view text) {
  const auto foreign = [](const std::string& what) {
    return tl::unexpected(fmt::format("{}, {}", what, kExpected));
  };
  try {
    const Json json = parse_json(text);
    Judgements found;
    found.of_proofs = json.is_object() && json.contains("proofs");
    if (!json.is_object() || (!found.of_proofs && !json.contains("scenarios"))) {
      return foreign("has neither \"scenarios\" nor \"proofs\"");
    }
    for (const Json& one : json.at(found.of_proofs ? "proofs" : "scenarios")) {
      found.all.push_back(found.of_proofs ? proof_in(one) : run_in(one));
    }
    return found;
  } catch (const Json::parse_error& error) {
    return foreign(fmt::format("no JSON (at byte {})", error.byte));
  } catch (const Json::exception&) {
    return foreign("an entry is not as kvdrill writes it");
  } catch (const std::bad_optional_access&) {
    return foreign("an entry has an unknown verdict");
  }
}

Comparison compare(const Judgements& before, const Judgements& after) {
  std::map<std::string, const Judged*> known;
  for (const Judged& judged : before.all) known[judged.name] = &judged;
  Comparison all;
  for (const Judged& is : after.all) {
    const auto was = known.find(is.name);
    if (was != known.end()) {
      sort_in(*was->second, is, &all);
      known.erase(was);
    } else {
      (passes(is.verdict) ? all.appeared : all.worse).push_back({{}, is});
    }
  }
  for (const Judged& was : before.all) {
    if (const auto left = known.find(was.name); left != known.end() && left->second == &was) {
      all.vanished.push_back({was, {}});
    }
  }
  return all;
}

std::string comparison_text(const Comparison& comparison, bool color) {
  std::string out;
  for (const Section& section : sections(comparison)) {
    const std::string word = color && section.color != 0
                                 ? fmt::format("\x1b[{}m{:<8}\x1b[0m", section.color, section.word)
                                 : fmt::format("{:<8}", section.word);
    for (const Difference& row : *section.rows) {
      const std::string& why = row.after.why;
      const std::string what =
          fmt::format("{}: {} -> {}{}", name_of(row), verdict_or_absent(row.before),
                      verdict_or_absent(row.after), why.empty() ? "" : ": " + why);
      out += fmt::format("  {} {}\n", word, printable(what));
    }
  }
  for (const Difference& row : comparison.times) {
    out += printable(fmt::format("  {:<8} {}: {} ms -> {} ms\n", "time", name_of(row),
                                 row.before.ms, row.after.ms));
  }
  std::string counts;
  for (const Section& section : sections(comparison)) {
    counts += fmt::format("{} {}, ", section.rows->size(), section.word);
  }
  return out + fmt::format("{}{} the same\n", counts, comparison.same);
}

std::string comparison_json(const Comparison& comparison) {
  Json json;
  for (const Section& section : sections(comparison)) {
    Json rows = Json::array();
    for (const Difference& row : *section.rows) {
      rows.push_back({{"name", name_of(row)},
                      {"before", verdict_or_absent(row.before)},
                      {"after", verdict_or_absent(row.after)},
                      {"why", row.after.why}});
    }
    json[section.word] = std::move(rows);
  }
  Json times = Json::array();
  for (const Difference& row : comparison.times) {
    times.push_back(
        {{"name", name_of(row)}, {"before_ms", row.before.ms}, {"after_ms", row.after.ms}});
  }
  json["times"] = std::move(times);
  json["same"] = comparison.same;
  return dump_json(json, 1) + "\n";
}

int compare_command(const CommandLine& line) {
  std::vector<Judgements> both;
  for (const std::string& path : line.paths) {
    auto read = read_judgements(path);
    if (!read) {
      complain(read.error());
      return 2;
    }
    both.push_back(*std::move(read));
  }
  if (both[0].of_proofs != both[1].of_proofs) {
    complain(fmt::format("{} is of {} and {} of {}, expected two of a kind", line.paths[0],
                         both[0].of_proofs ? "proofs" : "drills", line.paths[1],
                         both[1].of_proofs ? "proofs" : "drills"));
    return 2;
  }
  const Comparison comparison = compare(both[0], both[1]);
  fmt::print("{}", line.format == "json" ? comparison_json(comparison)
                                         : comparison_text(comparison, look_around().color));
  return comparison.worse.empty() ? 0 : 1;
}

}  // namespace kv::drill
