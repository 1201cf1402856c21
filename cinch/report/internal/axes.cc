#include "cinch/report/internal/axes.h"

#include <fmt/format.h>

#include <cmath>

#include "cinch/report/internal/chart.h"
#include "cinch/report/internal/page.h"

namespace cinch::report::internal {
namespace {

std::string grid_line(const Axes& axes, double y, const std::string& words) {
  return fmt::format(
      "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
      axes.left, axes.right, y, y, axes.left - 8, y + 4, words);
}

std::string axis_name(const Axes& axes, const std::string& name) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", axes.left - 8, axes.top - 12,
                     escape(name));
}
}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  std::vector<double> result;
  if (!(high > low)) return result;
  const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough)));
  const double part = rough / power;
  const double step = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
  for (auto i = static_cast<std::int64_t>(std::ceil(low / step - 1e-9));
       static_cast<double>(i) * step <= high * (1 + 1e-12); ++i) {
    result.push_back(static_cast<double>(i) * step);
  }
  return result;
}

std::string open_svg(double height, const std::string& description) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, height, escape(description));
}

std::string byte_axis(const Axes& axes, const Unit& unit) {
  std::string svg = axis_name(axes, std::string(unit.name));
  for (const double value : ticks(axes.y_low / unit.bytes, axes.y_high / unit.bytes, 6)) {
    svg += grid_line(axes, axes.y(value * unit.bytes), fmt::format("{:g}", value));
  }
  return svg;
}

std::string number_axis(const Axes& axes, const std::string& name) {
  std::string svg = axis_name(axes, name);
  for (const double value : ticks(axes.y_low, axes.y_high, 6))
    svg += grid_line(axes, axes.y(value), fmt::format("{:g}", value));
  return svg;
}

std::string bottom_axis(const Axes& axes, const std::string& name, bool whole_numbers) {
  std::string svg = fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>",
                                axes.left, axes.right, axes.bottom);
  for (const double value : ticks(axes.x_low, axes.x_high, 8)) {
    if (whole_numbers && value != std::floor(value)) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>", axes.x(value),
                       axes.bottom + 18, value);
  }
  return svg + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                           (axes.left + axes.right) / 2, axes.bottom + 36, escape(name));
}

std::string budget_line(const Axes& axes, Bytes budget, std::string_view name) {
  const double y = axes.y(static_cast<double>(budget.count()));
  return fmt::format(
      "<line class=\"budget\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
      "<text class=\"budget-text\" x=\"{:.1f}\" y=\"{:.1f}\">{} {}</text>",
      axes.left, axes.right, y, y, axes.left + 8, y - 6, name, to_string(budget));
}
}  // namespace cinch::report::internal
