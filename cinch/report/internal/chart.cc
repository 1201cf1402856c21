#include "cinch/report/internal/chart.h"

#include <fmt/format.h>

#include <cmath>

#include "cinch/report/internal/axes.h"
#include "cinch/report/internal/page.h"

namespace cinch::report::internal {
namespace {

constexpr std::size_t kLossPoints = 1500;

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
}  // namespace cinch::report::internal
