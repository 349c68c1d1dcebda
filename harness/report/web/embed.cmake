# Writes OUTPUT: a source file with the text of each file of FILES (separated by commas), for web_page.h.
string(REPLACE "," ";" FILES "${FILES}")
set(entries)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND entries "  if (name == \"${name}\") return R\"kvdrill(${text})kvdrill\";\n")
endforeach()
file(WRITE ${OUTPUT} "// Made from harness/report/web by its embed.cmake.
#include \"harness/report/web_page.h\"

#include <cstdlib>

namespace kv::drill {

std::string_view web_file(std::string_view name) {
${entries}  std::abort();
}

}  // namespace kv::drill
")
