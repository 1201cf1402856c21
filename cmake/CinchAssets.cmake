# cinch_assets(TARGET FILE...): the text of these files of cinch/report/assets/, and of d3, in TARGET, as internal/assets.h
# says. Run as a script it writes the source.
if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "|" ";" FILES "${FILES}")
  set(entries "")
  foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"cinchasset(${text})cinchasset\"},\n")
  endforeach()
  file(WRITE ${OUTPUT}
"// Made by cmake/CinchAssets.cmake.
#include \"cinch/report/internal/assets.h\"

#include <utility>

namespace cinch::report::internal {
namespace {
constexpr std::pair<std::string_view, std::string_view> kAssets[] = {
${entries}};
}  // namespace

std::string_view asset(std::string_view name) {
  for (const auto& [file, text] : kAssets) {
    if (file == name) return text;
  }
  return \"\";
}
}  // namespace cinch::report::internal
")
  return()
endif()

set(cinch_assets_script ${CMAKE_CURRENT_LIST_FILE})
find_file(CINCH_D3 d3.min.js PATHS /usr/share/javascript/d3 NO_DEFAULT_PATH
          DOC "d3 of version 3, for the charts of HTML reports (Debian: libjs-d3)")
set(cinch_d3_begin "")
if(CINCH_D3)
  file(READ ${CINCH_D3} cinch_d3_begin LIMIT 200)
endif()
if(NOT cinch_d3_begin MATCHES "version:\"3\\.")
  message(WARNING "No d3 of version 3 (Debian: libjs-d3): HTML reports will have static charts alone.")
  unset(CINCH_D3 CACHE)
endif()

function(cinch_assets target)
  set(output ${CMAKE_BINARY_DIR}/generated/${target}_assets.cc)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/cinch/report/assets/ OUTPUT_VARIABLE files)
  if(CINCH_D3)
    list(APPEND files ${CINCH_D3})
  endif()
  string(JOIN "|" list ${files})
  add_custom_command(OUTPUT ${output} DEPENDS ${files} ${cinch_assets_script} VERBATIM
                     COMMAND ${CMAKE_COMMAND} "-DFILES=${list}" -DOUTPUT=${output} -P ${cinch_assets_script})
  target_sources(${target} PRIVATE ${output})
endfunction()
