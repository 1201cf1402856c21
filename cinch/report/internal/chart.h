#pragma once
// Charts as inline SVG, coloured by the page's style.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/report/internal/format.h"
#include "cinch/report/summaries.h"

namespace cinch::report::internal {

/// Live bytes over the events of a trace, stacked by category; below it the phases and steps; the peak, and the budget
/// where it is near enough to be drawn, by its name. `outline`: the total of another curve over the same events,
/// dashed.
std::string memory_chart(const Curve& curve, std::optional<Bytes> budget, const Curve* outline = nullptr,
                         std::string_view budget_name = "budget");

/// True when two curves run through the same steps and phases, so that one can be laid over the other.
bool comparable(const Curve& left, const Curve& right);

/// Training loss as a line, evaluations as dots on a line. Losses that are not finite leave a gap.
std::string loss_chart(const FitSummary& fit);

/// Round numbers from 0 or above `low` to `high`, about `count` of them, to label an axis with.
std::vector<double> ticks(double low, double high, int count);
}  // namespace cinch::report::internal
