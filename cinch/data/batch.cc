#include "cinch/data/batch.h"

#include <algorithm>

namespace cinch::data {

Batch narrow(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch part{batch.inputs.narrow(0, first, count), batch.targets.narrow(0, first, count), 0, batch.targets_per_row};
  part.target_count = part.targets.numel();
  if (batch.target_count == batch.targets.numel()) return part;
  if (batch.target_count == batch.targets_per_row * batch.size()) {
    part.target_count = batch.targets_per_row * count;
    return part;
  }
  // Rows of a contiguous tensor are contiguous.
  const std::int64_t* targets = part.targets.const_data_ptr<std::int64_t>();
  part.target_count -= std::count(targets, targets + part.targets.numel(), kIgnored);
  return part;
}
}  // namespace cinch::data
