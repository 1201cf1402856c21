# LibTorch, linked CPU-only: libtorch_cpu and libc10, never libtorch (which pulls in CUDA). CINCH_TORCH_DIR names the
# folder that holds torch/ and nvidia/ as pip lays them out.
set(CINCH_TORCH_DIR "${CMAKE_SOURCE_DIR}/build/torch-2.11.0" CACHE PATH "Folder that holds torch/include and torch/lib")
set(_torch ${CINCH_TORCH_DIR}/torch)
add_library(cinch_torch INTERFACE)
target_include_directories(cinch_torch SYSTEM INTERFACE ${_torch}/include ${_torch}/include/torch/csrc/api/include)
target_link_libraries(cinch_torch INTERFACE ${_torch}/lib/libtorch_cpu.so ${_torch}/lib/libc10.so)
target_link_options(cinch_torch INTERFACE -Wl,-rpath,${_torch}/lib -Wl,--allow-shlib-undefined)
