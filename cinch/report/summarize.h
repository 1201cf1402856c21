#pragma once
// From a classified trace to what reports show.

#include "cinch/report/summaries.h"
#include "cinch/trace/trace.h"

namespace cinch::report {

/// `tensors`: how many of the peak's tensors are kept.
PeakSummary summarize_peak(const trace::Trace& trace, std::size_t tensors = 40);

/// At most `points` points, the peak among them.
Curve thin(const trace::Trace& trace, std::size_t points = 800);
}  // namespace cinch::report
