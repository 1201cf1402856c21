#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cinch::data {

/// One batch on the host. Text: inputs and targets int64 [batch, context]. Images: inputs float32
/// [batch, channels, height, width] or [batch, features], targets int64 [batch].
/// `target_count` (targets of kIgnored left out) is counted by the source: the weight of every micro-batch must be known
/// before its backward, and a dry run cannot look at values.
struct Batch {
  at::Tensor inputs, targets;
  std::int64_t target_count = 0;
  std::int64_t size() const { return inputs.size(0); }
};
/// A target with this value does not count.
inline constexpr std::int64_t kIgnored = -100;

/// Rows [first, first+count) as views; counts their targets (all of them when none of `batch` is ignored, so that nothing
/// is read then; else by looking).
Batch narrow(const Batch& batch, std::int64_t first, std::int64_t count);
}  // namespace cinch::data
