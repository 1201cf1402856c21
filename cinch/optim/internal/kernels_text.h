#pragma once
// kernels.cuh as text: cmake/CinchKernels.cmake writes the source.

#include <string_view>

namespace cinch::optim::internal {
extern const std::string_view kKernelsText;
}  // namespace cinch::optim::internal
