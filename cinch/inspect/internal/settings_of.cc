#include "cinch/inspect/internal/settings_of.h"

#include <algorithm>

#include "cinch/core/error.h"

namespace cinch::inspect::internal {

allocator::Settings settings_of(const snapshot::RecordedSettings& recorded) {
  allocator::Settings settings;
  try {
    settings = allocator::Settings::parse(recorded.alloc_conf);
  } catch (const UsageError&) {  // Of a newer PyTorch, or not PyTorch's.
  }
  if (recorded.max_split_size) settings.max_split_size = recorded.max_split_size;
  if (recorded.garbage_collection_threshold > 0) {
    settings.garbage_collection_threshold = recorded.garbage_collection_threshold;
  }
  settings.expandable_segments = settings.expandable_segments || recorded.expandable_segments;
  const auto& divisions = recorded.roundup_power2_divisions;
  if (divisions.size() == settings.roundup_power2_divisions.size()) {
    std::transform(
        divisions.begin(), divisions.end(), settings.roundup_power2_divisions.begin(),
        [](std::int64_t count) { return static_cast<std::uint16_t>(std::clamp<std::int64_t>(count, 0, 1 << 15)); });
  }
  return settings;
}
}  // namespace cinch::inspect::internal
