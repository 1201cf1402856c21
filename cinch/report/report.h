#pragma once
// Summaries as text for people, JSON for programs, HTML for a browser. Computes nothing.

#include <string>

#include "cinch/report/summaries.h"

namespace cinch::report {

/// For a terminal. `colour`: ANSI colours.
std::string text(const Estimate& estimate, bool colour = false);
std::string text(const Planned& planned, bool colour = false);
std::string text(const FitSummary& fit, bool colour = false);

/// One document, schema "cinch.estimate/1", "cinch.plan/1", "cinch.train/1", with a closing newline.
std::string json(const Estimate& estimate);
std::string json(const Planned& planned);
std::string json(const FitSummary& fit);

/// Self-contained: no script or style from elsewhere.
std::string html(const Estimate& estimate);
std::string html(const Planned& planned);
std::string html(const FitSummary& fit);
}  // namespace cinch::report
