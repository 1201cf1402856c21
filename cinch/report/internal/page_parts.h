#pragma once
// Parts that the pages share: tables and charts in sections, as HTML.

#include <optional>
#include <string>
#include <string_view>

#include "cinch/report/summaries.h"

namespace cinch::report::internal {

/// A line on the chart: what must not be passed.
struct Limit {
  std::optional<Bytes> bytes;
  std::string name = "budget";
};

/// A curve as the page shows it: at rest, and live from the history of that id, if there is one.
struct Shown {
  const Curve& curve;
  const History& history;
  std::string_view id;
};

/// A bar of a category's colour, as wide as `bytes` are of `whole`.
std::string bar(trace::Category category, Bytes bytes, Bytes whole);
/// A category's name with its colour.
std::string named(trace::Category category);

/// The peak's tensors, and the treemap of its modules.
std::string tensors_section(const PeakSummary& peak, const History& history, std::string_view id);
/// Its categories, then its tensors.
std::string peak_sections(const PeakSummary& peak, const History& history, std::string_view id);

/// Memory over time. `over`: another curve, laid over it.
std::string memory_section(const std::string& title, const std::string& note, const Shown& shown, const Limit& limit,
                           const Shown* over = nullptr);
/// The history that the script draws from; "" if there is none.
std::string data_of(const Shown& shown);
/// For tensors: on a card what the driver's context leaves.
Limit limit_of(Bytes budget, const PeakSummary& peak);

/// The command that comes next; "" for none.
std::string next(const std::string& command);
}  // namespace cinch::report::internal
