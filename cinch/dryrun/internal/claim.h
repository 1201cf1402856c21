#pragma once
// A CUDA device that is not there, so that fake tensors can be on it: autograd runs its device thread, autocast and
// is_cuda() answer as on a real one, and choices that depend on the device come out as there.

#include "cinch/device/device_spec.h"

namespace cinch::dryrun::internal {

/// Makes device cuda:0 exist for LibTorch, once in a process and for good; nothing if LibTorch's own CUDA has a device.
/// Call it before the process's first backward(): autograd counts devices then. Throws UnsupportedError where LibTorch's
/// CUDA library is loaded and finds no device, and where autograd began without one.
void claim_cuda();

/// The card whose properties (compute capability) decide which kernels run, of the dry run in force; nullptr: none.
void claim_properties(const device::DeviceSpec* device) noexcept;
const device::DeviceSpec* claimed() noexcept;
}  // namespace cinch::dryrun::internal
