# Sanitizers. LibTorch itself is not instrumented: memory that it allocates and we free passes through the runtime's
# malloc on both sides, but containers that cross the border confuse the container checks, and it keeps what it has
# until the process ends.
if(CINCH_SANITIZE OR CINCH_FUZZ)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  set(CINCH_TEST_ENVIRONMENT
      "ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1"
      "UBSAN_OPTIONS=print_stacktrace=1")
endif()
if(CINCH_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "The fuzzers need clang: configure with -DCMAKE_CXX_COMPILER=clang++.")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
