// The pages that kvdrill writes, made of the files in web/: each is a page that a browser opens as
// it lies there, with sample data; what is written is that page in one file, with style and scripts
// inside and the data of a run.
//
// Threads, ownership: functions and constants.
#ifndef HARNESS_REPORT_WEB_PAGE_H_
#define HARNESS_REPORT_WEB_PAGE_H_

#include <string>
#include <string_view>

namespace kv::drill {

// The text of a file in web/, as it was when this program was built; the name must be one of them.
std::string_view web_file(std::string_view name);

// The page `name` with every style sheet and script that it links inside, and with `content` in the
// place of its sample: all between "<!-- begin SLOT -->" and "<!-- end SLOT -->".
std::string web_page(std::string_view name, std::string_view slot, std::string_view content);

}  // namespace kv::drill

#endif  // HARNESS_REPORT_WEB_PAGE_H_
