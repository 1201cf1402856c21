#pragma once
// From a classified trace to what reports show.

#include <cstdint>
#include <string>
#include <vector>

#include "cinch/report/summaries.h"
#include "cinch/trace/trace.h"

namespace cinch::report {

/// `tensors`: how many of the peak's tensors are kept.
PeakSummary summarize_peak(const trace::Trace& trace, std::size_t tensors = 40);

/// Activations and temporaries at the peak: by `modules` (those that can be checkpointed; alike ones together), tensors
/// whose last size is `classes` (0: none are looked for), autocast's copies of weights, and the rest by module.
std::vector<ActivationGroup> activation_groups(const trace::Trace& trace, const std::vector<std::string>& modules,
                                               std::int64_t classes);

/// At most `points` points, the peak among them.
Curve thin(const trace::Trace& trace, std::size_t points = 800);
}  // namespace cinch::report
