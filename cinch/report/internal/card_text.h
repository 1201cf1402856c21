#pragma once
// An estimate for a CUDA card, for people.

#include <string>

#include "cinch/report/summaries.h"

namespace cinch::report::internal {

/// `estimate.peak.card` is there.
std::string card_text(const Estimate& estimate, bool colour);
}  // namespace cinch::report::internal
