#pragma once
// A recording or a trace, as what_if() and grid() need it.

#include <functional>
#include <span>

#include "cinch/allocator/replay.h"

namespace cinch::allocator::internal {

struct Source {
  std::function<void(trace::Sink&)> play;
  std::size_t first_event = 0;
  bool empties_cache = true;
  // Of a recording alone:
  std::optional<Settings> settings{};
  std::span<const trace::Segment> start{};
};
Source source_of(const snapshot::Snapshot& snapshot, const snapshot::Device& device);
Source source_of(const trace::Trace& trace);

/// The first order of addresses. `mattered`: others may give another result.
WhatIf try_first(const Source& source, const Machine& machine, bool& mattered);
/// All the orders it takes.
WhatIf try_orders(const Source& source, const Machine& machine);
/// Widens the result of the first order by the others.
void try_others(const Source& source, const Machine& machine, WhatIf& run);
}  // namespace cinch::allocator::internal
