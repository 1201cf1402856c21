#pragma once
// What techniques that the search might not use would give: lossy ones that nobody allowed, the host's memory on a CPU.

#include <vector>

#include "cinch/plan/solver.h"

namespace cinch::plan::internal {

/// `base` with each technique that is not allowed, where it is legal and makes the step smaller or, if `base` fits the
/// budget, faster; last, where
/// several make it smaller, with all of those that can be had together ("adam8bit, bf16").
std::vector<WouldGive> would_give(const Problem& problem, const CostModel& costs, const Simulate& simulate,
                                  const Candidate& base);
}  // namespace cinch::plan::internal
