#pragma once
// Which kernel scaled_dot_product_attention runs on a CUDA card.

#include <ATen/native/transformers/sdp_utils_cpp.h>

#include <cstdint>

#include "cinch/device/device_spec.h"

namespace cinch::dryrun::internal {

/// An at::SDPBackend, by the rules of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (LibTorch 2.11, CUDA 13 build):
/// cuDNN first on compute capability 9 and 10, then flash, memory-efficient, math; each asks for types, head sizes,
/// strides and masks it can take. `device` nullptr: a card of capability 8.0.
std::int64_t attention_choice(const sdp::sdp_params& call, const device::DeviceSpec* device);
}  // namespace cinch::dryrun::internal
