#pragma once
// The CUDA cards that find() knows by name.

#include <span>

#include "cinch/device/device_spec.h"

namespace cinch::device::internal {

/// By age.
std::span<const DeviceSpec> cards();

/// What LibTorch lets cuBLAS have, for each thread and stream, unless CUBLAS_WORKSPACE_CONFIG says otherwise.
Bytes default_cublas_workspace(int compute_capability);
}  // namespace cinch::device::internal
