#pragma once
// The frame of a chart: where values lie on the drawing.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "cinch/report/internal/format.h"

namespace cinch::report::internal {

inline constexpr double kWidth = 1060;  ///< Of every chart, in units of its drawing.

/// What an axis has to show.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  /// A little air on both sides; something to divide by where all values are equal.
  void widen(double part) {
    const double span = high > low ? high - low : std::max(std::abs(high), 1.0) * 0.1;
    low -= span * part;
    high += span * part;
  }
};

struct Axes {
  double left = 78, right = kWidth - 20, top = 26, bottom = 300;
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;

  double x(double value) const { return left + (value - x_low) / (x_high - x_low) * (right - left); }
  double y(double value) const { return bottom - (value - y_low) / (y_high - y_low) * (bottom - top); }
};

/// Opens an svg of height `height`; `description` is for those who cannot see it.
std::string open_svg(double height, const std::string& description);
/// Horizontal grid lines with their values in `unit` (bytes), its name above.
std::string byte_axis(const Axes& axes, const Unit& unit);
/// Horizontal grid lines of a plain number.
std::string number_axis(const Axes& axes, const std::string& name);
/// Values along the bottom, with `name` under them.
std::string bottom_axis(const Axes& axes, const std::string& name, bool whole_numbers);
/// Dashed line with its words: `name` and the size.
std::string budget_line(const Axes& axes, Bytes budget, std::string_view name = "budget");
}  // namespace cinch::report::internal
