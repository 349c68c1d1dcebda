// The folder of --report: index.html and what it is made of. `run` and `prove` each bring their
// part up to date, and the page shows both: drills.json and proofs.json keep the other one's part.
//
// Threads, ownership: functions of values; every file is written whole or not at all, and a file of
// one of these names that is no part of a report stays as it is.
#ifndef HARNESS_REPORT_REPORT_FOLDER_H_
#define HARNESS_REPORT_REPORT_FOLDER_H_

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "harness/report/report.h"

namespace kv::drill {

// Both parts as text for their files, and back; an error says what is no part of a report.
std::string drills_to_json(const DrillsPart& part);
std::string proofs_to_json(const ProofsPart& part);
tl::expected<DrillsPart, std::string> drills_from_json(std::string_view text);
tl::expected<ProofsPart, std::string> proofs_from_json(std::string_view text);

// Why no report can be put there: a page, or this part of one, that kvdrill did not write. Empty:
// it can.
std::string why_no_report(const std::string& folder, bool of_proofs);

// Puts this part into the folder and makes the page anew. A kept part that cannot be read is left
// out of the page, and named in `notes`. False, with `why`: a file could not be written.
bool report_drills(const std::string& folder, const DrillsPart& part,
                   std::vector<std::string>* notes, std::string* why);
bool report_proofs(const std::string& folder, const ProofsPart& part,
                   std::vector<std::string>* notes, std::string* why);

// Now and here, for a part: "2026-11-30 14:05", and the folder that its files' names start from.
PartOrigin part_origin(std::string command, std::int64_t ns);

}  // namespace kv::drill

#endif  // HARNESS_REPORT_REPORT_FOLDER_H_
