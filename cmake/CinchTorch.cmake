# cinch::torch: LibTorch, linked CPU-only (libtorch_cpu and libc10, never libtorch, which pulls in CUDA).
#
# CINCH_TORCH_DIR names the folder that holds LibTorch: one in which pip has unpacked the wheel (DIR/torch/include), the
# torch package of a Python installation, or the unpacked libtorch archive (DIR/include, DIR/lib).
# Also read by the installed cinchConfig.cmake, so it stands alone.
set(CINCH_TORCH_OLDEST 2.11)
set(CINCH_TORCH_NEWEST 2.15)

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  message(FATAL_ERROR "cinch needs x86-64 Linux; this is ${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_SYSTEM_NAME}.")
endif()

# cinch_find_torch(DIR ROOT VERSION): sets the folder with include/ and lib/, and the version as "2.11.0".
function(cinch_find_torch dir root_variable version_variable)
  set(root ${dir})
  if(EXISTS ${dir}/torch/include/ATen/ATen.h)
    set(root ${dir}/torch)
  endif()
  if(NOT EXISTS ${root}/include/ATen/ATen.h OR NOT EXISTS ${root}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "No LibTorch in ${dir}: scripts/setup.sh fetches one; CINCH_TORCH_DIR names one you have.")
  endif()
  set(header ${root}/include/torch/headeronly/version.h)
  if(NOT EXISTS ${header})
    set(header ${root}/include/torch/csrc/api/include/torch/version.h)
  endif()
  file(READ ${header} text)
  set(numbers "")
  foreach(part MAJOR MINOR PATCH)
    if(NOT text MATCHES "#define TORCH_VERSION_${part} ([0-9]+)")
      message(FATAL_ERROR "${header} states no TORCH_VERSION_${part}.")
    endif()
    list(APPEND numbers ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN numbers . version)
  list(POP_BACK numbers)
  list(JOIN numbers . series)
  if(series VERSION_LESS CINCH_TORCH_OLDEST OR series VERSION_GREATER CINCH_TORCH_NEWEST)
    message(FATAL_ERROR "LibTorch ${version} in ${dir} is not supported: cinch needs "
                        "${CINCH_TORCH_OLDEST} to ${CINCH_TORCH_NEWEST}.")
  endif()
  set(${root_variable} ${root} PARENT_SCOPE)
  set(${version_variable} ${version} PARENT_SCOPE)
endfunction()

if(NOT TARGET cinch::torch)
  cinch_find_torch(${CINCH_TORCH_DIR} CINCH_TORCH_ROOT CINCH_TORCH_VERSION)
  message(STATUS "LibTorch ${CINCH_TORCH_VERSION} in ${CINCH_TORCH_ROOT}")
  add_library(cinch::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(cinch::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CINCH_TORCH_ROOT}/include;${CINCH_TORCH_ROOT}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${CINCH_TORCH_ROOT}/lib/libtorch_cpu.so;${CINCH_TORCH_ROOT}/lib/libc10.so"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath,${CINCH_TORCH_ROOT}/lib;-Wl,--allow-shlib-undefined")

  # cinch::torch_cuda: what must be asked of LibTorch's CUDA allocator. The headers that it includes are CUDA's own: pip
  # puts them beside LibTorch.
  file(GLOB cuda_includes ${CINCH_TORCH_ROOT}/../nvidia/*/include)
  find_path(CINCH_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_includes} /usr/local/cuda/include)
  if(CINCH_CUDA_INCLUDE AND EXISTS ${CINCH_TORCH_ROOT}/lib/libtorch_cuda.so)
    add_library(cinch::torch_cuda INTERFACE IMPORTED GLOBAL)
    set_target_properties(cinch::torch_cuda PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${CINCH_CUDA_INCLUDE}"
      INTERFACE_LINK_LIBRARIES
        "cinch::torch;${CINCH_TORCH_ROOT}/lib/libtorch_cuda.so;${CINCH_TORCH_ROOT}/lib/libc10_cuda.so")
  endif()
endif()
