#pragma once
// The phases of a trace as spans of time.

#include <cstdint>
#include <string>
#include <vector>

#include "cinch/trace/trace.h"

namespace cinch::snapshot::internal {

/// Successive events of equal step and phase.
struct PhaseRun {
  std::string name;  ///< "step 1 forward"
  std::int64_t begin_us = 0, end_us = 0;
};
std::vector<PhaseRun> phases_of(const trace::Trace& trace);

/// Of an event at a position; where there is no clock, positions are microseconds.
std::int64_t time_us_of(const trace::Event& event, std::size_t position);
}  // namespace cinch::snapshot::internal
