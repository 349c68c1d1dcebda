// What a run says: lines for people, JSON, JUnit XML, and a page. Each is a pure function of the
// results except for the writing of files.
//
// Threads, ownership: values; files are written whole or not at all (rename into place), and only
// what an earlier call wrote is replaced.
#ifndef HARNESS_REPORT_REPORT_H_
#define HARNESS_REPORT_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/proof.h"
#include "harness/verdict/verdict.h"

namespace kv::drill {

struct Totals {
  std::uint64_t passed = 0, failed = 0, voided = 0, skipped = 0, errors = 0;
  void add(Verdict verdict);
  std::uint64_t all() const { return passed + failed + voided + skipped + errors; }
  // 0 all passed (or skipped), 1 failed, 3 void, 4 harness error: the worst of them.
  int exit_code() const;
};

// "2 not judged: a, b": the checks of a run that nobody judged; empty: there are none.
std::string not_judged_words(const DrillResult& result);

// One drill's line, and under a failure its reasons, its folder and the command that repeats it;
// `color` for a terminal.
std::string drill_lines(const DrillResult& result, bool color);
std::string proof_lines(const ProofResult& result, bool color);
// "12 passed, 0 failed, 0 void, 0 skipped, 0 errors in 0.31 s"
std::string last_line(const Totals& totals, std::int64_t ns);

// The public formats. `surviving` is null when it was not judged (a part of a suite).
// `interrupted`: not all that was asked for is in it, and it says so.
std::string run_json(const std::vector<DrillResult>& results, const Totals& totals,
                     bool interrupted = false);
std::string prove_json(const std::vector<ProofResult>& proofs, std::size_t steps,
                       const std::optional<std::vector<std::string>>& surviving);

std::string junit(const std::vector<DrillResult>& results, std::int64_t ns);

struct PartOrigin {
  std::string command;  // that made it
  std::string when;     // for people
  std::string base;     // the folder that the files' names start from
  std::int64_t ns = 0;  // how long it took
};
struct DrillsPart {
  PartOrigin origin;
  std::vector<DrillResult> results;
};
struct ProofsPart {
  PartOrigin origin;
  std::vector<ProofResult> results;
};
struct PageInput {
  std::optional<DrillsPart> drills;
  std::optional<ProofsPart> proofs;
};
// One self-contained page: drills, arms, proofs, times, and the way to each file and kept run.
std::string index_html(const PageInput& input);
// Whether this is the text of a page that index_html() made.
bool is_index_html(std::string_view text);

// What GitHub shows beside the line of a file, one "::error file=...::..." for each check that did
// not pass; nothing for a run that passed or was skipped.
std::string annotations(const DrillResult& result);
std::string annotation(const ProofResult& result);

// `text` for a terminal: control characters and bytes that are no UTF-8, which come from engines,
// peers and files, as \xNN; the ends of lines stay.
std::string printable(std::string_view text);
std::string one_line(std::string_view text);  // those too as \x0a

// "kvdrill: TEXT" as one line on standard error, whatever TEXT holds.
void complain(std::string_view text);

// "1 file", "2 files"
std::string counted(std::uint64_t number, std::string_view what);

// `text` for XML and HTML, in elements and in quoted attributes; control characters that neither
// has a place for become '?'.
std::string escaped(std::string_view text);

// Whether this is the text of a file that junit() made.
bool is_junit(std::string_view text);

// Why a file that is there stays as it is: it holds something that is not `ours`. Empty: there is
// none, or it may be replaced.
std::string why_not_replaced(const std::string& path, bool (*ours)(std::string_view text));

// Creates missing folders. A link is followed, and what is no regular file (a device, a pipe that
// somebody reads) is written to as it is. False with `why` when it cannot be written, or is there
// and not `ours`.
bool write_file(const std::string& path, std::string_view text, bool (*ours)(std::string_view text),
                std::string* why);

}  // namespace kv::drill

#endif  // HARNESS_REPORT_REPORT_H_
