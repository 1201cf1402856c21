#pragma once
// The loss all models here share.

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "cinch/data/batch.h"
#include "cinch/techniques/linear_cross_entropy.h"

namespace cinch::models::internal {

/// Sum of the cross entropies of logits [rows, classes] with int64 targets [rows] that count; a float32 scalar.
inline at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.to(at::kFloat), targets, /*weight=*/{}, at::Reduction::Sum, data::kIgnored);
}

/// The same of a linear head, whose logits exist `chunk_size` rows at a time: `hidden` [..., features], int64 `targets`
/// [...].
inline at::Tensor chunked_loss_sum(const at::Tensor& hidden, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, const at::Tensor& targets,
                                   std::int64_t chunk_size) {
  return linear_cross_entropy(
      hidden, weight, bias, targets,
      {.chunk_size = chunk_size, .ignore_index = data::kIgnored, .reduction = at::Reduction::Sum});
}
}  // namespace cinch::models::internal
