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

/// One order of addresses, the start packed anew.
WhatIf try_order(const Source& source, const Machine& machine, AddressOrder order, bool& addresses_mattered);
/// All the orders it takes.
WhatIf try_orders(const Source& source, const Machine& machine);
}  // namespace cinch::allocator::internal
