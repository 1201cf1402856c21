#include "cinch/report/internal/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cinch/report/internal/axes.h"
#include "cinch/report/internal/page.h"

namespace cinch::report::internal {
namespace {

constexpr std::size_t kLossPoints = 1500;

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

std::string loss_path(const Axes& axes, const std::vector<FitSummary::StepLoss>& losses) {
  std::string path;
  bool pen_down = false;
  const std::size_t stride = losses.size() / kLossPoints + 1;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i % stride != 0 && i + 1 != losses.size()) continue;
    if (!std::isfinite(losses[i].loss)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", axes.x(static_cast<double>(losses[i].step)),
                        axes.y(losses[i].loss));
    pen_down = true;
  }
  return path;
}

std::string dot(const Axes& axes, const FrontierRow& row) {
  return fmt::format("<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}: {}, {}</title></circle>",
                     row.best   ? "best"
                     : row.fits ? "fits"
                                : "over",
                     axes.x(row.candidate.step_time.count()), axes.y(static_cast<double>(row.candidate.peak.count())),
                     row.best ? 7 : 5, escape(row.change), to_string(row.candidate.peak),
                     seconds(row.candidate.step_time.count()));
}

/// The words beside a point; the best one alone has them, so that none covers another.
std::string point_words(const Axes& axes, const FrontierRow& row) {
  const double x = axes.x(row.candidate.step_time.count()), y = axes.y(static_cast<double>(row.candidate.peak.count()));
  const bool room_left = x > axes.left + 0.25 * (axes.right - axes.left);  // Below and left of the line nothing lies.
  return fmt::format("<text class=\"strong\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>",
                     room_left ? x - 10 : x + 12, room_left ? y + 20 : y - 9, room_left ? "end" : "start",
                     escape(one_line(row.change, 60)));
}
}  // namespace

std::string loss_chart(const FitSummary& fit) {
  Range x, y;
  for (const auto* losses : {&fit.steps, &fit.evaluations}) {
    for (const auto& [step, loss] : *losses) {
      x.add(static_cast<double>(step));
      y.add(loss);
    }
  }
  if (x.empty() || y.empty()) return "<p>No step was trained.</p>";
  if (x.high <= x.low) x.high = x.low + 1;
  y.widen(0.06);
  Axes axes;
  axes.bottom = 270;
  axes.x_low = x.low, axes.x_high = x.high, axes.y_low = y.low, axes.y_high = y.high;
  std::string svg = open_svg(axes.bottom + 46, "Loss over steps");
  svg += number_axis(axes, "loss") + bottom_axis(axes, "step", true);
  if (!fit.steps.empty()) svg += fmt::format("<path class=\"loss\" d=\"{}\"/>", loss_path(axes, fit.steps));
  if (!fit.evaluations.empty()) svg += fmt::format("<path class=\"held\" d=\"{}\"/>", loss_path(axes, fit.evaluations));
  for (const auto& [step, loss] : fit.evaluations) {
    if (!std::isfinite(loss)) continue;
    svg += fmt::format(
        "<circle class=\"held-dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>step {}: {:.4f}</title></circle>",
        axes.x(static_cast<double>(step)), axes.y(loss), step, loss);
  }
  std::string legend =
      "<div class=\"legend\"><span><i class=\"swatch\" style=\"background:var(--accent)\"></i>training</span>";
  if (!fit.evaluations.empty()) {
    legend += "<span><i class=\"swatch\" style=\"background:var(--gradient)\"></i>held out</span>";
  }
  return legend + "</div><figure>" + svg + "</svg></figure>";
}

std::string frontier_chart(const std::vector<FrontierRow>& rows, Bytes budget) {
  Range x;
  Bytes highest;
  for (const FrontierRow& row : rows) {
    x.add(row.candidate.step_time.count());
    highest = std::max(highest, row.candidate.peak);
  }
  if (x.empty()) return "";
  x.widen(0.08);
  const bool near = budget.count() < 2 * highest.count();
  if (near) highest = std::max(highest, budget);
  Axes axes;
  axes.bottom = 290;
  axes.x_low = std::max(0.0, x.low), axes.x_high = x.high;
  axes.y_high = 1.1 * static_cast<double>(highest.count());
  std::string svg = open_svg(axes.bottom + 46, "Plans by time of a step and peak memory");
  svg += byte_axis(axes, unit_for(highest)) + bottom_axis(axes, "seconds a step (predicted)", false);
  if (near) {
    const double y = axes.y(static_cast<double>(budget.count()));
    svg += fmt::format("<rect class=\"zone\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", axes.left,
                       axes.top, axes.right - axes.left, std::max(0.0, y - axes.top));
    svg += budget_line(axes, budget);
  }
  // The frontier alone: no other plan is both as fast and as small.
  std::string path;
  Bytes least(std::numeric_limits<std::int64_t>::max());
  for (const FrontierRow& row : rows) {
    if (row.candidate.peak >= least) continue;
    least = row.candidate.peak;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", axes.x(row.candidate.step_time.count()),
                        axes.y(static_cast<double>(row.candidate.peak.count())));
  }
  svg += fmt::format("<path class=\"front\" d=\"{}\"/>", path);
  for (const FrontierRow& row : rows) svg += dot(axes, row);
  for (const FrontierRow& row : rows) {
    if (row.best) svg += point_words(axes, row);
  }
  return "<figure>" + svg + "</svg></figure>";
}
}  // namespace cinch::report::internal
