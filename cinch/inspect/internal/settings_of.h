#pragma once
// The allocator's settings as a recording states them.

#include "cinch/allocator/settings.h"
#include "cinch/snapshot/snapshot.h"

namespace cinch::inspect::internal {

/// What the recording states counts over its PYTORCH_CUDA_ALLOC_CONF, of which words that cinch does not know are left
/// out.
allocator::Settings settings_of(const snapshot::RecordedSettings& recorded);
}  // namespace cinch::inspect::internal
