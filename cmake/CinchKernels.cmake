# cinch_kernels(TARGET FILE): the text of FILE in TARGET, as cinch/optim/internal/kernels_text.h says. Run as a script it
# writes the source.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${FILE} text)
  file(WRITE ${OUTPUT}
"// Made by cmake/CinchKernels.cmake.
#include \"cinch/optim/internal/kernels_text.h\"

namespace cinch::optim::internal {
const std::string_view kKernelsText = R\"cinchkernel(${text})cinchkernel\";
}  // namespace cinch::optim::internal
")
  return()
endif()

set(cinch_kernels_script ${CMAKE_CURRENT_LIST_FILE})
function(cinch_kernels target file)
  set(output ${CMAKE_BINARY_DIR}/generated/${target}_kernels.cc)
  add_custom_command(OUTPUT ${output} DEPENDS ${file} ${cinch_kernels_script} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -DFILE=${file} -DOUTPUT=${output} -P ${cinch_kernels_script})
  target_sources(${target} PRIVATE ${output})
endfunction()
