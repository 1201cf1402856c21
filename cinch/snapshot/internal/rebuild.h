#pragma once
// The state at the start of a trace, from the state at its end: every event undone, the newest first.

#include "cinch/snapshot/internal/recording.h"

namespace cinch::snapshot::internal {

/// Events [first, last) of a device's trace.
struct Range {
  std::size_t first = 0, last = 0;
};

/// Undoes a device's trace down to `range.first`; marks what contradicts the rest as left out, and gives events their
/// pools. Fills `start`, `end`, `left_out`; `first_event` and `events` from the range.
void rebuild(Recording& recording, Recording::PerDevice& recorded, Range range, Device& device);
}  // namespace cinch::snapshot::internal
