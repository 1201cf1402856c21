#pragma once
// Plans by time of a step and peak, as inline SVG and the table of its numbers.

#include <string>
#include <vector>

#include "cinch/report/internal/frontier.h"

namespace cinch::report::internal {

/// The least memory for each time of a step, as a line of steps with its plans numbered from 1; what is over the budget
/// is shaded. Apart from it, plans that the user has not allowed, each tied to `from`, which it would change.
std::string frontier_chart(const Planned& planned, const std::vector<FrontierRow>& rows, const plan::Candidate& from,
                           const std::vector<plan::WouldGive>& gives);

/// A row for each number.
std::string frontier_html(const std::vector<FrontierRow>& rows);
}  // namespace cinch::report::internal
