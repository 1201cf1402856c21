#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/core/text.h"
#include "cinch/inspect/words.h"
#include "cinch/report/inspection.h"
#include "cinch/report/internal/axes.h"
#include "cinch/report/internal/chart.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/page.h"
#include "cinch/report/internal/path_rows.h"
#include "cinch/report/internal/waste.h"

namespace cinch::report {
namespace {

using inspect::Inspection;
using inspect::Live;
using inspect::size_words;
using internal::escape;
using internal::section;
using internal::Unit;

constexpr std::size_t kPaths = 32;   // Rows of call paths,
constexpr std::size_t kFrames = 3;   // frames of each,
constexpr std::size_t kPinned = 12;  // of pinned segments.

std::string number(std::size_t count) { return with_thousands(static_cast<std::int64_t>(count)); }

double percent(Bytes part, Bytes whole) {
  return whole.count() > 0 ? 100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count()) : 0;
}

std::string cell(const std::string& text) { return "<td>" + escape(text) + "</td>"; }
std::string figure(const std::string& text) { return "<td class=\"n\">" + escape(text) + "</td>"; }

std::string kind_name(inspect::Kind kind) {
  return fmt::format("<i class=\"swatch {}\"></i>{}", internal::colour_class(category_of(kind)), escape(name_of(kind)));
}

std::string kinds_table(const Live& live) {
  const Unit unit = internal::unit_for(live.bytes);
  std::string html = fmt::format(
      "<table><tr><th>what</th><th></th><th class=\"n\">bytes</th><th class=\"n\">{}</th><th class=\"n\">share</th>"
      "<th class=\"n\">tensors</th><th></th></tr>",
      unit.name);
  for (const Live::OfKind& row : live.kinds) {
    html +=
        fmt::format("<tr><td>{}</td><td class=\"bars\"><div class=\"bar {}\" style=\"width:{:.1f}%\"></div></td>",
                    kind_name(row.kind), internal::colour_class(category_of(row.kind)), percent(row.bytes, live.bytes));
    html += figure(with_thousands(row.bytes.count())) + figure(internal::in_unit(row.bytes, unit)) +
            figure(internal::share(row.bytes, live.bytes)) + figure(number(row.tensors)) + cell(row.note) + "</tr>";
  }
  return html + "<tr class=\"total\"><td>total</td><td></td>" + figure(with_thousands(live.bytes.count())) +
         figure(internal::in_unit(live.bytes, unit)) + "<td></td>" + figure(number(live.tensors)) +
         "<td></td></tr></table>";
}

std::string paths_table(const Live& live) {
  const Unit unit = internal::unit_for(live.bytes);
  std::string html = fmt::format(
      "<table><tr><th>what</th><th>where it was made</th><th class=\"n\">tensors</th><th class=\"n\">largest</th>"
      "<th class=\"n\">{}</th><th class=\"n\">share</th></tr>",
      unit.name);
  const std::vector<internal::PathRow> rows = internal::path_rows(live, kFrames);
  for (std::size_t i = 0; i < std::min(rows.size(), kPaths); ++i) {
    const internal::PathRow& row = rows[i];
    html += "<tr><td>" + kind_name(row.kind) + "</td><td class=\"code\">" + escape(row.where) + "</td>" +
            figure(number(row.tensors)) + figure(size_words(row.largest)) + figure(internal::in_unit(row.bytes, unit)) +
            figure(internal::share(row.bytes, live.bytes)) + "</tr>";
  }
  return html + "</table>";
}

std::string_view waste_colour(std::string_view key) {
  constexpr std::pair<std::string_view, std::string_view> kColours[] = {
      {"requested", "activation"}, {"rounding", "unknown"},         {"unsplittable", "gradient"},
      {"stranded", "temporary"},   {"other_streams", "input"},      {"private_pools", "optimizer_state"},
      {"pending_frees", "buffer"}, {"cached_segments", "parameter"}};
  for (const auto& [part, colour] : kColours) {
    if (part == key) return colour;
  }
  return "unknown";
}

/// One bar, as long as what is reserved: its parts in order, what tensors asked for first.
std::string waste_bar(const inspect::Fragmentation& parts) {
  constexpr double kHeight = 34;
  std::string svg = internal::open_svg(kHeight, "Reserved memory by what becomes of it");
  double x = 0;
  for (const internal::WastePart& part : internal::waste_parts(parts)) {
    const double width = internal::kWidth * percent(part.bytes, parts.reserved) / 100;
    if (width <= 0) continue;
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"2\" width=\"{:.2f}\" height=\"30\" style=\"fill:var(--{})\"><title>{}: {} "
        "B</title></rect>",
        x, width, waste_colour(part.key), escape(part.name), with_thousands(part.bytes.count()));
    x += width;
  }
  return "<figure>" + svg + "</svg></figure>";
}

std::string waste_table(const inspect::Fragmentation& at_peak, const inspect::Fragmentation& at_end) {
  std::string html =
      "<table><tr><th>part</th><th class=\"n\">at the peak, bytes</th><th class=\"n\">share</th>"
      "<th class=\"n\">at the end, bytes</th><th class=\"n\">share</th></tr>";
  const auto first = internal::waste_parts(at_peak), last = internal::waste_parts(at_end);
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].bytes == Bytes(0) && last[i].bytes == Bytes(0)) continue;
    html += fmt::format("<tr><td><i class=\"swatch\" style=\"background:var(--{})\"></i>{}</td>",
                        waste_colour(first[i].key),
                        first[i].key == "cached_segments"
                            ? fmt::format("whole cached segments ({}, {})", number(at_peak.cached_segment_count),
                                          number(at_end.cached_segment_count))
                            : escape(last[i].name));
    html += figure(with_thousands(first[i].bytes.count())) + figure(internal::share(first[i].bytes, at_peak.reserved)) +
            figure(with_thousands(last[i].bytes.count())) + figure(internal::share(last[i].bytes, at_end.reserved)) +
            "</tr>";
  }
  return html + "<tr class=\"total\"><td>reserved</td>" + figure(with_thousands(at_peak.reserved.count())) +
         "<td></td>" + figure(with_thousands(at_end.reserved.count())) + "<td></td></tr></table>";
}

std::string pinned_table(const inspect::Fragmentation& parts) {
  std::string html =
      "<table><tr><th class=\"n\">free</th><th class=\"n\">of segment</th><th class=\"n\">blocks that live</th>"
      "<th>kept by, smallest first</th></tr>";
  for (std::size_t i = 0; i < std::min(parts.pinned.size(), kPinned); ++i) {
    const inspect::PinnedSegment& segment = parts.pinned[i];
    std::string holders;
    for (const auto& holder : segment.holders) {
      holders +=
          (holders.empty() ? "" : "; ") + size_words(holder.requested) + (holder.path.empty() ? "" : " " + holder.path);
    }
    html += "<tr>" + figure(size_words(segment.free)) + figure(size_words(segment.total)) +
            figure(number(segment.blocks)) + "<td class=\"code\">" + escape(holders) + "</td></tr>";
  }
  return html + "</table>";
}

std::string findings_table(const Inspection& seen) {
  std::string html = "<table><tr><th>finding</th><th>what to do</th></tr>";
  for (const inspect::Finding& finding : seen.findings) {
    html += "<tr>" + cell(finding.text) + cell(finding.action) + "</tr>";
  }
  return html + "</table>";
}

std::string leaks_table(const inspect::Leaks& leaks) {
  std::string html =
      "<table><tr><th>made at</th><th class=\"n\">bytes a step</th><th class=\"n\">held</th><th "
      "class=\"n\">periods</th></tr>";
  for (const inspect::Leak& leak : leaks.found) {
    html += "<tr><td class=\"code\">" + escape(leak.path) + "</td>" +
            figure(with_thousands(leak.bytes_per_step.count())) + figure(size_words(leak.held)) +
            figure(number(leak.periods)) + "</tr>";
  }
  return html + "</table>";
}

/// As the charts of estimate and train have it. Where no step is known there is but one.
Curve curve_of(const Inspection& seen) {
  Curve curve;
  curve.peak = seen.peak.bytes;
  for (const inspect::CurvePoint& point : seen.curve) {
    curve.points.push_back({std::max(point.step, 1U), point.phase, point.live, point.event - seen.first_event});
  }
  return curve;
}

std::string memory(const Inspection& seen) {
  const Curve curve = curve_of(seen);
  std::vector<trace::CategoryBytes> all;
  for (const Curve::Point& point : curve.points) all.push_back(point.live);
  std::optional<Bytes> limit = seen.fits_capacity;
  if (seen.oom) limit = seen.oom->capacity;
  const std::string note = seen.first_event > 0 ? "Requested bytes, by category; the time axis begins at event " +
                                                      number(seen.first_event) + "."
                                                : "Requested bytes, by category.";
  return section("Memory over time", seen.leaks.found.empty() ? note : note + " What leaks is counted as unknown.",
                 internal::legend(all) + internal::memory_chart(curve, limit, nullptr, "capacity"));
}

std::string verdict(const Inspection& seen) {
  if (seen.oom)
    return internal::verdict(seen.oom->headline + " " + seen.oom->verdict, seen.oom->any_setting_helps,
                             seen.oom->to_fit);
  const inspect::Finding* first = seen.findings.empty() ? nullptr : &seen.findings.front();
  return first == nullptr ? "" : internal::verdict(first->text, seen.leaks.found.empty(), first->action);
}

std::string out_of_memory(const inspect::OutOfMemory& oom) {
  std::string html = section("Live at that moment", oom.why, kinds_table(oom.live));
  if (!oom.remedies.empty()) {
    std::string ways = "<table><tr><th>with</th><th class=\"n\">lives at most, bytes</th><th></th></tr>";
    for (const inspect::Remedy& remedy : oom.remedies) {
      ways += "<tr>" + cell(remedy.name + (remedy.at_best ? ", at best" : "")) +
              figure(with_thousands(remedy.leaves.count())) +
              cell(remedy.fits ? "fits" : size_words(remedy.leaves - oom.capacity) + " over") + "</tr>";
    }
    html += section("What would fit", "bf16 is counted as half: so it is of what is float32 now.", ways + "</table>");
  }
  if (oom.make_room.empty()) return html;
  std::string rows = "<table><tr><th>what</th><th>where it was made</th><th class=\"n\">bytes</th></tr>";
  for (const inspect::Tensor& tensor : oom.make_room) {
    rows += "<tr><td>" + kind_name(tensor.kind) + "</td><td class=\"code\">" + escape(tensor.path) + "</td>" +
            figure(with_thousands(tensor.bytes.count())) + "</tr>";
  }
  return html + section("Would have made room",
                        "The smallest set of tensors without which the request would have been served.",
                        rows + "</table>");
}

std::string ranks_table(const inspect::Ranks& ranks) {
  Bytes highest;
  for (const inspect::Rank& rank : ranks.all) highest = std::max(highest, rank.peak);
  std::string rows =
      "<table><tr><th>file</th><th>peak</th><th class=\"n\">GPU</th><th class=\"n\">events</th><th "
      "class=\"n\">peak</th>"
      "<th class=\"n\">reserved</th><th class=\"n\">at the end</th><th></th></tr>";
  for (std::size_t i = 0; i < ranks.all.size(); ++i) {
    const inspect::Rank& rank = ranks.all[i];
    rows += fmt::format(
        "<tr class=\"{}\"><td class=\"code\">{}</td><td class=\"bars\"><div class=\"bar c-activation\" "
        "style=\"width:{:.1f}%\">"
        "</div></td>",
        ranks.outlier == i ? "best" : "", escape(rank.source), percent(rank.peak, highest));
    rows += figure(std::to_string(rank.device)) + figure(number(rank.events)) + figure(size_words(rank.peak)) +
            figure(size_words(rank.peak_reserved)) + figure(size_words(rank.end)) +
            cell(!rank.error.empty() ? rank.error
                 : rank.ran_out      ? "ran out of memory"
                                     : "") +
            "</tr>";
  }
  rows += "<tr class=\"total\"><td>total</td><td></td><td></td><td></td>" + figure(size_words(ranks.peak_total)) +
          figure(size_words(ranks.peak_reserved_total)) + "<td></td><td></td></tr></table>";
  return rows;
}
}  // namespace

std::string html(const Inspected& inspected) {
  const Inspection& seen = inspected.inspection;
  std::vector<std::pair<std::string, std::string>> cards = {
      {"peak requested", size_words(seen.peak.bytes)},
      {"at", inspect::event_words(seen.peak.event, seen.first_event + seen.events)}};
  if (seen.has_segments) {
    cards.emplace_back("peak reserved", size_words(seen.peak_reserved));
    cards.emplace_back("best possible", size_words(seen.best_possible));
    cards.emplace_back("settings", seen.alloc_conf.empty() ? "defaults" : seen.alloc_conf);
  }
  if (!seen.optimizer.empty()) cards.emplace_back("optimizer", seen.optimizer);
  std::string body = verdict(seen) + internal::cards(cards);
  body += section("Findings", "", findings_table(seen));
  body += memory(seen);
  if (seen.oom) body += out_of_memory(*seen.oom);
  body += section(seen.has_history ? "At the peak" : "At the dump", seen.peak.where, kinds_table(seen.peak));
  body += section("By call path", "Largest first.", paths_table(seen.peak));
  if (seen.has_segments) {
    body += section("Reserved memory", "The bar shows the peak. The parts sum to what is reserved.",
                    waste_bar(seen.at_peak) + waste_table(seen.at_peak, seen.at_end));
    if (!seen.at_end.pinned.empty()) {
      body += section("Segments in part free, at the end", "What lives in them keeps them from being given back.",
                      pinned_table(seen.at_end));
    }
  }
  if (!seen.leaks.found.empty()) body += section("Leaks", "", leaks_table(seen.leaks));
  if (inspected.devices)
    body += section("GPUs of the recording", inspected.devices->sentence, ranks_table(*inspected.devices));
  return internal::page("cinch inspect", inspected.environment, seen.source, body);
}

std::string html(const InspectedRanks& inspected) {
  const inspect::Ranks& ranks = inspected.ranks;
  const std::string first = ranks.sentence.empty() ? "One recording" : ranks.sentence;
  return internal::page("cinch inspect", inspected.environment, inspected.source,
                        internal::verdict(first, !ranks.outlier, "") + section("Recordings", "", ranks_table(ranks)));
}
}  // namespace cinch::report
