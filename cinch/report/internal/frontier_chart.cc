#include "cinch/report/internal/frontier_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "cinch/report/internal/axes.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/page.h"

namespace cinch::report::internal {
namespace {

struct Point {
  double x, y;
};

Point place(const Axes& axes, const plan::Candidate& candidate) {
  return {axes.x(candidate.step_time.count()), axes.y(static_cast<double>(candidate.peak.count()))};
}

std::string_view kind(const FrontierRow& row) { return row.best ? "best" : row.fits ? "fits" : "over"; }

std::string tip(const std::string& plan, const plan::Candidate& candidate) {
  return fmt::format("<title>{}: {}, {}</title>", escape(plan), to_string(candidate.peak),
                     seconds(candidate.step_time.count()));
}

std::string words(Point at, std::string_view style, std::string_view anchor, const std::string& text) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", style, at.x, at.y,
                     anchor, escape(text));
}

/// For every time the least memory: down where a plan's time is reached, then level until the next one's.
std::string staircase(const Axes& axes, const std::vector<FrontierRow>& rows) {
  std::string path;
  for (const FrontierRow& row : rows) {
    if (row.beaten) continue;
    const Point at = place(axes, row.candidate);
    path += path.empty() ? fmt::format("M{:.1f} {:.1f}", at.x, at.y) : fmt::format("H{:.1f}V{:.1f}", at.x, at.y);
  }
  return path.empty() ? "" : fmt::format("<path class=\"front\" d=\"{}H{:.1f}\"/>", path, axes.right);
}

/// What is written beside the chosen plan. Above and right of the line there are only plans that others beat.
struct BestLabel {
  std::string text;
  Point at;
  bool to_the_right;
};
BestLabel best_label(const Axes& axes, const FrontierRow& row, std::size_t number) {
  const Point at = place(axes, row.candidate);
  const bool room = at.x < axes.left + 0.5 * (axes.right - axes.left);
  return {fmt::format("{}  {}", number, one_line(row.plan, 70)),
          room ? Point{at.x + 11, at.y - 10} : Point{axes.right, at.y - 12}, room};
}

std::string dot(const Axes& axes, const FrontierRow& row, std::size_t number) {
  const Point at = place(axes, row.candidate);
  const std::string circle =
      fmt::format("<circle class=\"dot {}{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">{}</circle>", kind(row),
                  row.beaten ? " beaten" : "", at.x, at.y, row.best ? 7 : 5, tip(row.plan, row.candidate));
  if (!row.best) return circle + words({at.x + 8, at.y - 7}, "tiny", "start", std::to_string(number));
  const BestLabel label = best_label(axes, row, number);
  return circle + words(label.at, "strong", label.to_the_right ? "start" : "end", label.text);
}

/// Keys of what a plan needs allowed: "adam8bit + bf16".
std::string keys_of(const Planned& planned, const plan::Plan& plan) {
  std::string keys = allow_flags(planned, plan);
  for (std::size_t at = keys.find("--allow "); at != std::string::npos; at = keys.find("--allow ", at))
    keys.replace(at, 8, at == 0 ? "" : "+ ");
  return keys;
}

/// Names above or below their marks, each where it covers none before it.
class Labels {
 public:
  /// Beside what belongs to `rows`.
  Labels(const Axes& axes, const std::vector<FrontierRow>& rows) : axes_(axes) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Point at = place(axes, rows[i].candidate);
      taken_.push_back({at.x - 8, at.x + 20, at.y});
      if (!rows[i].best) continue;
      const BestLabel label = best_label(axes, rows[i], i + 1);
      const double width = kPerCharacter * static_cast<double>(label.text.size());
      const double begin = label.to_the_right ? label.at.x : label.at.x - width;
      taken_.push_back({begin, begin + width, label.at.y});
    }
  }

  std::string put(Point at, const std::string& name) {
    const double width = kPerCharacter * static_cast<double>(name.size());
    const bool left = at.x + width > axes_.right;
    const double begin = left ? at.x + 6 - width : at.x - 6;
    double y = at.y - 11;
    for (const double offset : {-11.0, 22.0, -25.0, 36.0, -39.0, 50.0}) {
      y = at.y + offset;
      if (y > axes_.top && y < axes_.bottom && free(begin, begin + width, y)) break;
    }
    taken_.push_back({begin, begin + width, y});
    return words({left ? at.x + 6 : at.x - 6, y}, "give-text", left ? "end" : "start", name);
  }

 private:
  static constexpr double kPerCharacter = 6.8, kHeight = 14;
  struct Box {
    double begin, end, y;
  };
  bool free(double begin, double end, double y) const {
    return std::ranges::none_of(taken_, [&](const Box& box) {
      return begin < box.end && end > box.begin && y < box.y + kHeight && y > box.y - kHeight;
    });
  }

  const Axes& axes_;
  std::vector<Box> taken_;
};

/// Lines first, then marks, then names: what is read lies on top.
std::string forbidden(const Axes& axes, const Planned& planned, const std::vector<FrontierRow>& rows,
                      const plan::Candidate& from, const std::vector<plan::WouldGive>& gives) {
  std::string lines, marks, names;
  Labels labels(axes, rows);
  const Point origin = place(axes, from);
  for (const plan::WouldGive& give : gives) {
    const Point at = place(axes, give.candidate);
    const std::string keys = keys_of(planned, give.candidate.plan);
    lines += fmt::format("<line class=\"give-line\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                         origin.x, origin.y, at.x, at.y);
    marks += fmt::format("<path class=\"give\" d=\"M{:.1f} {:.1f}l6 6l-6 6l-6 -6z\">{}</path>", at.x, at.y - 6,
                         tip(keys, give.candidate));
    names += labels.put(at, keys);
  }
  return lines + marks + names;
}

std::string legend(bool beaten, bool gives) {
  const auto entry = [](std::string_view mark, std::string_view name) {
    return fmt::format("<span><svg class=\"mark\" viewBox=\"0 0 16 12\">{}</svg>{}</span>", mark, name);
  };
  std::string html = "<div class=\"legend\">";
  html += entry("<circle class=\"dot best\" cx=\"8\" cy=\"6\" r=\"5\"/>", "chosen: the fastest that fits");
  html += entry("<circle class=\"dot fits\" cx=\"8\" cy=\"6\" r=\"4\"/>", "fits");
  html += entry("<circle class=\"dot over\" cx=\"8\" cy=\"6\" r=\"4\"/>", "over the budget");
  if (beaten)
    html += entry("<circle class=\"dot beaten\" cx=\"8\" cy=\"6\" r=\"4\"/>", "plain training, beaten by others");
  if (gives) html += entry("<path class=\"give\" d=\"M8 1l5 5l-5 5l-5 -5z\"/>", "not allowed, would give");
  return html + "</div>";
}
}  // namespace

std::string frontier_chart(const Planned& planned, const std::vector<FrontierRow>& rows, const plan::Candidate& from,
                           const std::vector<plan::WouldGive>& gives) {
  Range x;
  Bytes highest;
  const auto see = [&](const plan::Candidate& candidate) {
    x.add(candidate.step_time.count());
    highest = std::max(highest, candidate.peak);
  };
  for (const FrontierRow& row : rows) see(row.candidate);
  for (const plan::WouldGive& give : gives) see(give.candidate);
  if (x.empty()) return "";
  x.widen(0.08);
  const bool near = planned.budget.count() < 2 * highest.count();
  if (near) highest = std::max(highest, planned.budget);
  Axes axes;
  axes.bottom = 340;
  axes.x_low = std::max(0.0, x.low), axes.x_high = x.high;
  axes.y_high = 1.1 * static_cast<double>(highest.count());
  std::string svg = open_svg(axes.bottom + 46, "Plans by time of a step and peak memory");
  if (near) {
    const double y = axes.y(static_cast<double>(planned.budget.count()));
    svg += fmt::format("<rect class=\"zone\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", axes.left,
                       axes.top, axes.right - axes.left, std::max(0.0, y - axes.top));
  }
  svg += byte_axis(axes, unit_for(highest)) + bottom_axis(axes, "seconds a step (predicted)", false);
  if (near) svg += budget_line(axes, planned.budget);
  svg += staircase(axes, rows);
  svg += forbidden(axes, planned, rows, from, gives);
  for (std::size_t i = 0; i < rows.size(); ++i) svg += dot(axes, rows[i], i + 1);
  const bool beaten = std::ranges::any_of(rows, &FrontierRow::beaten);
  return legend(beaten, !gives.empty()) + "<figure>" + svg + "</svg></figure>";
}

std::string frontier_html(const std::vector<FrontierRow>& rows) {
  Bytes largest;
  for (const FrontierRow& row : rows) largest = std::max(largest, row.candidate.peak);
  const Unit unit = unit_for(largest);
  std::string html = fmt::format(
      "<table><tr><th class=\"n\"></th><th class=\"n\">peak {}</th><th class=\"n\">step</th><th class=\"n\">vs "
      "fastest</th><th class=\"n\">time</th><th class=\"n\">memory</th><th>change from the row above</th>"
      "<th>plan</th><th></th></tr>",
      unit.name);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const FrontierRow& row = rows[i];
    html += fmt::format("<tr class=\"{}\"><td class=\"n\">{}</td>", kind(row), i + 1);
    for (const std::string& figure : {in_unit(row.candidate.peak, unit), seconds(row.candidate.step_time.count()),
                                      row.versus, row.time, row.memory})
      html += fmt::format("<td class=\"n\">{}</td>", figure);
    html += fmt::format("<td>{}</td><td class=\"advice\">{}</td><td>{}</td></tr>", row.beaten ? "" : escape(row.change),
                        escape(row.plan), row.best ? "chosen" : kind(row));
  }
  return html + "</table>";
}
}  // namespace cinch::report::internal
