#pragma once
// Which kernel scaled_dot_product_attention runs on a CUDA card.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cinch/device/device_spec.h"

namespace cinch::dryrun::internal {

struct AttentionCall {
  at::Tensor query, key, value;  ///< [batch, heads, length, head size]
  at::Tensor mask;               ///< Undefined if there is none.
  double dropout = 0;
  bool causal = false;
  bool grouped = false;          ///< Fewer key and value heads than query heads are allowed.
};

/// An at::SDPBackend, by the rules of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (LibTorch 2.11, CUDA 13 build):
/// cuDNN first on compute capability 9 and 10, then flash, memory-efficient, math; each asks for types, head sizes,
/// strides and masks it can take. `device` nullptr: a card of capability 8.0.
std::int64_t attention_choice(const AttentionCall& call, const device::DeviceSpec* device);
}  // namespace cinch::dryrun::internal
