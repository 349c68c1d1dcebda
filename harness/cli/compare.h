// Two results, as 'run --format json' or 'prove --format json' wrote them, held against each other
// by name.
//
// Threads, ownership: functions and values.
#ifndef HARNESS_VERDICT_COMPARE_H_
#define HARNESS_VERDICT_COMPARE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "harness/verdict/verdict.h"

namespace kv::drill {

// One drill or proof of a result.
struct Judged {
  std::string name;
  Verdict verdict = Verdict::kPass;
  std::int64_t ms = -1;         // -1: not told
  std::string why;              // the first reason of one that did not pass
  std::string not_judged = {};  // its checks that nobody judged: ", 2 not judged: a, b"
};

struct Judgements {
  bool of_proofs = false;
  std::vector<Judged> all;
};
// An error says what was expected.
tl::expected<Judgements, std::string> judgements_from_json(std::string_view text);

struct Difference {
  Judged before, after;  // one of them without a name: it is only in the other
};

struct Comparison {
  // worse: does not pass, and did better before or was not there; mended: passes, and did not pass
  // before; appeared: passes, and was not there; changed: any other two verdicts, or other
  // checks not judged.
  std::vector<Difference> worse, mended, changed, appeared, vanished;
  std::vector<Difference> times;  // the same verdict, and twice as slow or as fast: for information
  std::uint64_t same = 0;
};
Comparison compare(const Judgements& before, const Judgements& after);

std::string comparison_text(const Comparison& comparison, bool color);
std::string comparison_json(const Comparison& comparison);

}  // namespace kv::drill

#endif  // HARNESS_VERDICT_COMPARE_H_
