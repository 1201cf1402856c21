#pragma once
// The loss all models here share.

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "cinch/data/batch.h"

namespace cinch::models::internal {

/// Sum of the cross entropies of logits [rows, classes] with int64 targets [rows] that count; a float32 scalar.
inline at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.to(at::kFloat), targets, /*weight=*/{}, at::Reduction::Sum, data::kIgnored);
}
}  // namespace cinch::models::internal
