# cinch_record_cuda: cinch/record/cuda, where LibTorch has CUDA and its headers are there. Beside cinch_record, since what
# is linked with it needs libtorch_cuda when it starts.
set(folder ${CMAKE_SOURCE_DIR}/cinch/record/cuda)
if(CINCH_TESTS)  # With an allocator of the test's own: needs no CUDA.
  cinch_test(cinch_record_cuda_test TORCH SOURCES ${folder}/record_on_oom.cc ${folder}/record_on_oom_test.cc
             LINK cinch_core)
endif()
if(NOT TARGET cinch::torch_cuda)
  message(STATUS "No CUDA in ${CINCH_TORCH_ROOT}, or no CUDA headers: without cinch::record_cuda")
  return()
endif()

add_library(cinch_record_cuda STATIC ${folder}/record_on_oom.cc ${folder}/cuda_memory.cc)
add_library(cinch::record_cuda ALIAS cinch_record_cuda)
target_link_libraries(cinch_record_cuda PRIVATE $<BUILD_INTERFACE:cinch_options> PUBLIC cinch_core cinch::torch_cuda)
target_compile_features(cinch_record_cuda PUBLIC cxx_std_20)
target_include_directories(cinch_record_cuda INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                                       $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(cinch_record_cuda PROPERTIES EXPORT_NAME record_cuda)
install(TARGETS cinch_record_cuda EXPORT cinch ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${folder}/record_on_oom.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cinch/record/cuda)
