#include <fmt/format.h>

#include <algorithm>

#include "cinch/report/internal/axes.h"
#include "cinch/report/internal/chart.h"
#include "cinch/report/internal/page.h"

namespace cinch::report::internal {
namespace {

using Point = Curve::Point;

/// Points [begin, end) of equal step and phase.
struct Run {
  std::size_t begin, end;
  std::uint32_t step;
  trace::Phase phase;
};

std::vector<Run> runs_of(const Curve& curve) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const Point& point = curve.points[i];
    if (runs.empty() || runs.back().step != point.step || runs.back().phase != point.phase) {
      runs.push_back({i, i, point.step, point.phase});
    }
    runs.back().end = i + 1;
  }
  return runs;
}

/// Where each run begins; the next one begins where it ends.
double begin_x(const Curve& curve, const Axes& axes, const std::vector<Run>& runs, std::size_t run) {
  if (run == 0) return axes.left;
  if (run == runs.size()) return axes.right;
  return axes.x(static_cast<double>(curve.points[runs[run].begin].event));
}

/// `other`, which has the same runs, on the time axis of `curve`: its events may be more or fewer (an evaluation of one
/// batch beside one of many), so each of its runs is stretched over the same run of `curve`.
Curve in_step_with(const Curve& curve, const std::vector<Run>& runs, Curve other) {
  const auto begin_of = [](const Curve& in, const std::vector<Run>& of, std::size_t run) {
    return static_cast<double>(run < of.size() ? in.points[of[run].begin].event : in.points.back().event);
  };
  const std::vector<Run> own = runs_of(other);
  for (std::size_t run = 0; run < own.size(); ++run) {
    const double from = begin_of(other, own, run), length = std::max(1.0, begin_of(other, own, run + 1) - from);
    const double to = begin_of(curve, runs, run), room = begin_of(curve, runs, run + 1) - to;
    for (std::size_t i = own[run].begin; i < own[run].end; ++i) {
      Point& point = other.points[i];
      point.event = static_cast<std::size_t>(to + (static_cast<double>(point.event) - from) / length * room);
    }
  }
  return other;
}

/// An area from the baseline up to `height` of every point. Layers are painted from the highest sum to the lowest.
template <typename Height>
std::string outline(const Curve& curve, const Axes& axes, const Height& height, bool closed) {
  std::string path;
  double x = axes.left;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    x = axes.x(static_cast<double>(curve.points[i].event));
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, axes.y(height(curve.points[i])));
  }
  if (closed) path += fmt::format("L{0:.1f} {1:.1f}L{2:.1f} {1:.1f}Z", x, axes.bottom, axes.left);
  return path;
}

std::string layers(const Curve& curve, const Axes& axes) {
  std::string svg;
  const auto order = display_order();
  for (std::size_t top = order.size(); top-- > 0;) {
    const auto occurs = [&](const Point& point) { return point.live[order[top]].count() != 0; };
    if (std::none_of(curve.points.begin(), curve.points.end(), occurs)) continue;
    const auto height = [&](const Point& point) {
      Bytes sum;
      for (std::size_t i = 0; i <= top; ++i) sum += point.live[order[i]];
      return static_cast<double>(sum.count());
    };
    svg += fmt::format("<path class=\"{}\" d=\"{}\"/>", colour_class(order[top]), outline(curve, axes, height, true));
  }
  return svg;
}

/// The strip of phases under the time axis, and the steps under the strip.
std::string phases(const Curve& curve, const Axes& axes, const std::vector<Run>& runs) {
  constexpr double kStrip = 16, kLabelled = 34;
  std::string svg;
  const double y = axes.bottom + 4;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double from = begin_x(curve, axes, runs, i), to = begin_x(curve, axes, runs, i + 1);
    const std::string_view name = name_of(runs[i].phase);
    svg += fmt::format(
        "<rect class=\"p-{0}\" x=\"{1:.1f}\" y=\"{2:.1f}\" width=\"{3:.1f}\" height=\"{4}\"><title>{0}</title></rect>",
        name, from, y, std::max(to - from, 0.3), kStrip);
    if (to - from > std::max(kLabelled, 6.2 * static_cast<double>(name.size()))) {
      svg += fmt::format("<text class=\"tiny\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                         (from + to) / 2, y + 12, name);
    }
  }
  double last_label = 0;
  for (std::size_t i = 0; i < runs.size();) {
    std::size_t end = i;
    while (end < runs.size() && runs[end].step == runs[i].step) ++end;
    const double from = begin_x(curve, axes, runs, i), to = begin_x(curve, axes, runs, end);
    const double middle = (from + to) / 2;
    const std::string name = runs[i].step == 0 ? "init" : fmt::format("step {}", runs[i].step);
    if (i > 0 && to - from > 6) {
      svg += fmt::format("<line class=\"cut\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>", from,
                         axes.top, axes.bottom + 40);
    }
    if (middle - last_label > 52 && (to - from > 24 || runs.size() > 60)) {
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", middle, y + kStrip + 17,
                         name);
      last_label = middle;
    }
    i = end;
  }
  return svg;
}

std::string peak_mark(const Curve& curve, const Axes& axes) {
  const auto highest = std::max_element(curve.points.begin(), curve.points.end(),
                                        [](const Point& a, const Point& b) { return a.live.sum() < b.live.sum(); });
  const double x = axes.x(static_cast<double>(highest->event)),
               y = axes.y(static_cast<double>(highest->live.sum().count()));
  const bool at_right = x > (axes.left + axes.right) / 2;
  return fmt::format(
      "<circle class=\"peak\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\"/>"
      "<text class=\"strong\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">peak {}</text>",
      x, y, at_right ? x - 11 : x + 11, y + 4, at_right ? "end" : "start", to_string(highest->live.sum()));
}

/// What the page's script shows under the pointer: numbers and fixed words only.
std::string hover_data(const Curve& curve, const Axes& axes) {
  std::vector<std::string> x, steps, phase, labels, bytes, phases;
  for (const Point& point : curve.points) {
    x.push_back(fmt::format("{:.1f}", axes.x(static_cast<double>(point.event))));
    steps.push_back(std::to_string(point.step));
    phase.push_back(std::to_string(static_cast<int>(point.phase)));
  }
  for (int i = 0; i < trace::kPhaseCount; ++i)
    phases.push_back(fmt::format("\"{}\"", name_of(static_cast<trace::Phase>(i))));
  for (const trace::Category category : display_order()) {
    std::vector<std::int64_t> column;
    for (const Point& point : curve.points) column.push_back(point.live[category].count());
    if (std::all_of(column.begin(), column.end(), [](std::int64_t b) { return b == 0; })) continue;
    labels.push_back(fmt::format("\"{}\"", label(category)));
    bytes.push_back(fmt::format("[{}]", fmt::join(column, ",")));
  }
  return fmt::format(
      "{{\"width\":{},\"x\":[{}],\"steps\":[{}],\"phase\":[{}],\"phases\":[{}],\"labels\":[{}],\"bytes\":[{}]}}",
      kWidth, fmt::join(x, ","), fmt::join(steps, ","), fmt::join(phase, ","), fmt::join(phases, ","),
      fmt::join(labels, ","), fmt::join(bytes, ","));
}
}  // namespace

bool comparable(const Curve& left, const Curve& right) {
  const auto first = runs_of(left), second = runs_of(right);
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](const Run& a, const Run& b) { return a.step == b.step && a.phase == b.phase; });
}

std::string memory_chart(const Curve& curve, std::optional<Bytes> budget, const Curve* other,
                         std::string_view budget_name) {
  if (curve.points.empty() || curve.peak.count() <= 0) return "<p>No memory was used.</p>";
  Bytes highest = other ? std::max(curve.peak, other->peak) : curve.peak;
  const bool near = budget && budget->count() < 2 * highest.count();
  if (near) highest = std::max(highest, *budget);
  Axes axes;
  axes.bottom = 330;
  axes.x_low = 0;
  axes.x_high = static_cast<double>(std::max<std::size_t>(1, curve.points.back().event));
  axes.y_high = 1.07 * static_cast<double>(highest.count());
  const auto runs = runs_of(curve);
  std::string svg =
      open_svg(axes.bottom + 66, "Live bytes over time, stacked by category; peak " + to_string(curve.peak));
  svg += byte_axis(axes, unit_for(highest)) + layers(curve, axes) + phases(curve, axes, runs);
  const auto total = [](const Point& point) { return static_cast<double>(point.live.sum().count()); };
  if (other) {
    svg += fmt::format("<path class=\"overlay\" d=\"{}\"/>",
                       outline(in_step_with(curve, runs, *other), axes, total, false));
  }
  if (near) svg += budget_line(axes, *budget, budget_name);
  svg += peak_mark(curve, axes);
  svg += fmt::format("<line class=\"hair\" x1=\"0\" x2=\"0\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", axes.top, axes.bottom);
  svg +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">time, in allocations and frees</text></svg>",
                  (axes.left + axes.right) / 2, axes.bottom + 59);
  return fmt::format(
      "<figure data-hover=\"1\">{}<div class=\"tip\"></div><script type=\"application/json\">{}</script></figure>", svg,
      hover_data(curve, axes));
}
}  // namespace cinch::report::internal
