#pragma once
// 8-bit blockwise storage of a flat tensor, as two ops, so that dry runs and profilers see them:
//   cinch::compress_int8(Tensor flat) -> Tensor                    uint8: a float scale a block, then a byte an element
//   cinch::expand_int8(Tensor stored, int elements, ScalarType dtype) -> Tensor

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cinch::techniques::internal {

inline constexpr std::int64_t kBlock = 256;

/// `flat`: contiguous, of one dimension, float, bfloat16 or half.
at::Tensor compress_int8(const at::Tensor& flat);
/// What compress_int8() made of `elements` of `dtype`.
at::Tensor expand_int8(const at::Tensor& stored, std::int64_t elements, at::ScalarType dtype);
}  // namespace cinch::techniques::internal
