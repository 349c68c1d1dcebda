#include "harness/report/web_page.h"

#include <fmt/format.h>

namespace kv::drill {
namespace {

// Replaces each "BEFORE name AFTER" by "<TAG>text of the file</TAG>".
void inline_files(std::string& page, std::string_view before, std::string_view after,
                  std::string_view tag) {
  for (auto at = page.find(before); at != std::string::npos; at = page.find(before, at)) {
    const auto name = at + before.size();
    const auto end = page.find(after, name);
    const std::string element =
        fmt::format("<{0}>\n{1}</{0}>", tag, web_file(page.substr(name, end - name)));
    page.replace(at, end + after.size() - at, element);
    at += element.size();
  }
}

}  // namespace

std::string web_page(std::string_view name, std::string_view slot, std::string_view content) {
  std::string page(web_file(name));
  inline_files(page, "<link rel=\"stylesheet\" href=\"", "\">", "style");
  inline_files(page, "<script src=\"", "\"></script>", "script");
  const std::string begin = fmt::format("<!-- begin {} -->\n", slot);
  const std::string end = fmt::format("<!-- end {} -->\n", slot);
  const auto from = page.find(begin), to = page.find(end);
  page.replace(from, to + end.size() - from, fmt::format("{}\n", content));
  return page;
}

}  // namespace kv::drill
