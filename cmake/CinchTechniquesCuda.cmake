# cinch_techniques_cuda: cinch/techniques/cuda, where LibTorch has CUDA and its headers are there. Beside cinch_techniques,
# since what is linked with it needs libtorch_cuda when it starts.
if(NOT TARGET cinch::torch_cuda)
  return()
endif()
set(folder ${CMAKE_SOURCE_DIR}/cinch/techniques/cuda)
add_library(cinch_techniques_cuda STATIC ${folder}/offload_cuda.cc)
add_library(cinch::techniques_cuda ALIAS cinch_techniques_cuda)
target_link_libraries(cinch_techniques_cuda PRIVATE $<BUILD_INTERFACE:cinch_options> PUBLIC cinch_techniques cinch::torch_cuda)
target_compile_features(cinch_techniques_cuda PUBLIC cxx_std_20)
target_include_directories(cinch_techniques_cuda INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(cinch_techniques_cuda PROPERTIES EXPORT_NAME techniques_cuda)
install(TARGETS cinch_techniques_cuda EXPORT cinch ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${folder}/offload_cuda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cinch/techniques/cuda)
