# make install: the static libraries, the headers (internal ones stay here), the program, and a package for
# find_package(cinch REQUIRED), which gives cinch::cinch (all of it) and cinch::FOLDER.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/cinch)

get_property(folders GLOBAL PROPERTY CINCH_FOLDERS)
foreach(folder ${folders})
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cinch/${folder}/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cinch/${folder})
endforeach()
if(TARGET cinch)
  set_target_properties(cinch PROPERTIES INSTALL_RPATH "${CINCH_TORCH_ROOT}/lib")
  install(TARGETS cinch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT cinch NAMESPACE cinch:: DESTINATION ${package} FILE cinchTargets.cmake)

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/cinchConfig.cmake.in ${CMAKE_BINARY_DIR}/cinchConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cinchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cinchConfig.cmake ${CMAKE_BINARY_DIR}/cinchConfigVersion.cmake
              ${CMAKE_SOURCE_DIR}/cmake/CinchTorch.cmake DESTINATION ${package})
