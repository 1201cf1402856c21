#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cinch::data {

/// One batch on the host. Text: inputs int64 [batch, context], targets int64 of the same shape, or [batch] for a class
/// of the whole. Images: inputs float32 [batch, channels, height, width] or [batch, features], targets int64 [batch],
/// or [batch, height, width] for a class of every pixel. `target_count` (targets of kIgnored left out) is counted by
/// the source: the weight of every micro-batch must be known before its backward, and a dry run cannot look at values.
struct Batch {
  at::Tensor inputs, targets;
  std::int64_t target_count = 0;
  std::int64_t targets_per_row = 0;  ///< Counted targets of every row, where each has as many; else 0.
  std::int64_t size() const { return inputs.size(0); }
};
/// A target with this value does not count.
inline constexpr std::int64_t kIgnored = -100;

/// Rows [first, first+count) as views; counts their targets: by looking only where some of `batch` are ignored and its
/// rows differ.
Batch narrow(const Batch& batch, std::int64_t first, std::int64_t count);
}  // namespace cinch::data
