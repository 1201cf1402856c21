#pragma once
// A CUDA device that is not there, so that fake tensors can be on it: autograd runs its device thread, autocast and
// is_cuda() answer as on a real one, and choices that depend on the device come out as there.

#include "cinch/device/device_spec.h"

namespace cinch::dryrun::internal {

/// Makes room for a device cuda:0, once in a process and for good. To be called before the process's first backward():
/// autograd counts devices then. Nobody sees it until claim_cuda(). Leaves LibTorch's own CUDA alone.
void prepare_cuda();

/// From now to release_cuda() LibTorch finds CUDA available, one device with `device`'s properties, which must outlive
/// that. Throws UnsupportedError where LibTorch's CUDA library is loaded and finds no device, and where autograd began
/// before prepare_cuda().
void claim_cuda(const device::DeviceSpec& device);
void release_cuda() noexcept;
/// nullptr: nothing is claimed.
const device::DeviceSpec* claimed() noexcept;
}  // namespace cinch::dryrun::internal
