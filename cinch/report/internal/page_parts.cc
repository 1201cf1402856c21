#include "cinch/report/internal/page_parts.h"

#include <fmt/format.h>

#include "cinch/core/text.h"
#include "cinch/report/internal/advice.h"
#include "cinch/report/internal/chart.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/history_data.h"
#include "cinch/report/internal/page.h"

namespace cinch::report::internal {
namespace {
using trace::Category;
constexpr std::size_t kGroups = 24;  // Rows of largest tensors.

double percent(Bytes part, Bytes whole) {
  return whole.count() > 0 ? 100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count()) : 0;
}

std::string categories(const PeakSummary& peak) {
  const Unit unit = unit_for(peak.requested);
  std::string html = fmt::format(
      "<table><tr><th>category</th><th class=\"bars\"></th><th class=\"n\">bytes</th><th class=\"n\">{}</th>"
      "<th class=\"n\">share</th></tr>",
      unit.name);
  for (const Category category : display_order()) {
    const Bytes bytes = peak.categories[category];
    if (bytes.count() == 0) continue;
    html += fmt::format(
        "<tr><td>{}</td><td class=\"bars\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td></tr>",
        named(category), bar(category, bytes, peak.requested), with_thousands(bytes.count()), in_unit(bytes, unit),
        escape(share(bytes, peak.requested)));
  }
  return html + fmt::format(
                    "<tr class=\"total\"><td>total</td><td class=\"bars\"></td><td class=\"n\">{}</td><td "
                    "class=\"n\">{}</td><td></td></tr></table>",
                    with_thousands(peak.requested.count()), in_unit(peak.requested, unit));
}

std::string tensors_table(const PeakSummary& peak) {
  const Unit unit = unit_for(peak.requested);
  std::string html = fmt::format(
      "<table><tr><th>category</th><th>what, or where it was made</th><th>shape</th><th class=\"n\">count</th>"
      "<th class=\"n\">{}</th><th class=\"n\">share</th><th>what can shrink it</th></tr>",
      unit.name);
  for (const TensorGroup& group : groups(peak.tensors, kGroups)) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"code\">{}</td><td class=\"code\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td>"
        "<td class=\"n\">{}</td><td class=\"advice\">{}</td></tr>",
        named(group.category), escape(group.name), escape(group.shape), group.count, in_unit(group.bytes, unit),
        escape(share(group.bytes, peak.requested)), shrinks_by(group.category));
  }
  return html + "</table>";
}

/// What stands still, and the place of what the script draws from the history `id` instead.
std::string two_ways(const std::string& still, std::string_view drawn, std::string_view id,
                     const std::string& attributes = "") {
  return fmt::format("<div class=\"still\">{}</div><div class=\"moves {}\" data-history=\"{}\"{}></div>", still, drawn,
                     id, attributes);
}

std::vector<trace::CategoryBytes> all_of(const Curve& curve) {
  std::vector<trace::CategoryBytes> all;
  for (const Curve::Point& point : curve.points) all.push_back(point.live);
  return all;
}
}  // namespace

std::string bar(Category category, Bytes bytes, Bytes whole) {
  return fmt::format("<div class=\"bar {}\" style=\"width:{:.1f}%\"></div>", colour_class(category),
                     percent(bytes, whole));
}

std::string named(Category category) {
  return fmt::format("<span class=\"kind\"><i class=\"swatch {}\"></i>{}</span>", colour_class(category),
                     label(category));
}

std::string tensors_section(const PeakSummary& peak, const History& history, std::string_view id) {
  if (peak.tensors.empty()) return "";
  if (history.events.empty()) {
    return section("Largest tensors at the peak", "Alike ones are one row; * stands for a layer's number.",
                   tensors_table(peak));
  }
  return fmt::format("<div class=\"moves\">{}</div>",
                     section("The peak by module", where(peak),
                             fmt::format("<div class=\"moves map-live\" data-history=\"{}\"></div>", id))) +
         section("Tensors at the peak", "Alike ones are one row; * stands for a layer's number.",
                 two_ways(tensors_table(peak), "tensors-live", id));
}

std::string peak_sections(const PeakSummary& peak, const History& history, std::string_view id) {
  std::string note = where(peak);
  if (peak.card) note += "; tensors " + beside_tensors(peak, unit_for(peak.requested));
  return section("At the peak", note, categories(peak)) + tensors_section(peak, history, id);
}

std::string memory_section(const std::string& title, const std::string& note, const Shown& shown, const Limit& limit,
                           const Shown* over) {
  const std::string still = memory_chart(shown.curve, limit.bytes, over ? &over->curve : nullptr, limit.name);
  std::string attributes;
  if (limit.bytes) {
    attributes = fmt::format(" data-limit=\"{}\" data-limit-name=\"{} {}\"", limit.bytes->count(), escape(limit.name),
                             to_string(*limit.bytes));
  }
  if (over) attributes += fmt::format(" data-over=\"{}\"", over->id);
  return section(title, note,
                 legend(all_of(shown.curve)) +
                     (shown.history.events.empty() ? still : two_ways(still, "memory-live", shown.id, attributes)));
}

std::string data_of(const Shown& shown) {
  return shown.history.events.empty() ? "" : history_script(shown.id, shown.history) + "\n";
}

Limit limit_of(Bytes budget, const PeakSummary& peak) {
  if (!peak.card) return {budget};
  return {budget - peak.card->context, "budget less context"};
}

std::string next(const std::string& command) {
  return command.empty() ? "" : section("Next", "", "<code>" + escape(command) + "</code>");
}
}  // namespace cinch::report::internal
