#pragma once
// A snapshot of CUDA's memory when it runs out, from a C++ program.
//
//   cinch::record_on_oom("oom.pickle");      // then train; and if it fails: cinch inspect oom.pickle
//
//   target_link_libraries(app cinch::cinch cinch::record_cuda)   # cinch::record_cuda brings libtorch_cuda
//
// `cinch record` does the same for an unchanged Python program. Includes no LibTorch header.

#include <cstddef>
#include <filesystem>

#include "cinch/core/error.h"

namespace cinch {

/// Switches LibTorch's history of CUDA memory on, a ring of the last `max_events` with call stacks, and writes a
/// snapshot to `file` whenever an allocation fails, before LibTorch throws: under a temporary name, renamed. A later
/// failure replaces it. A file that cannot be written is a warning of LibTorch's, and the error the program sees is
/// still that of the allocation. The second call names another file. Initializes CUDA; throws UnsupportedError where
/// there is no GPU.
CINCH_API void record_on_oom(const std::filesystem::path& file, std::size_t max_events = 100'000);
}  // namespace cinch
