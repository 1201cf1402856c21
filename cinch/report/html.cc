#include <fmt/format.h>

#include <algorithm>

#include "cinch/core/text.h"
#include "cinch/report/internal/advice.h"
#include "cinch/report/internal/chart.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/history_data.h"
#include "cinch/report/internal/page.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::cards;
using internal::escape;
using internal::section;
using internal::Unit;
using trace::Category;

constexpr std::size_t kGroups = 24;
constexpr std::size_t kFrontier = 40;

double percent(Bytes part, Bytes whole) {
  return whole.count() > 0 ? 100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count()) : 0;
}

std::string bar(Category category, Bytes bytes, Bytes whole) {
  return fmt::format("<div class=\"bar {}\" style=\"width:{:.1f}%\"></div>", internal::colour_class(category),
                     percent(bytes, whole));
}

std::string named(Category category) {
  return fmt::format("<span class=\"kind\"><i class=\"swatch {}\"></i>{}</span>", internal::colour_class(category),
                     internal::label(category));
}

std::string categories(const PeakSummary& peak) {
  const Unit unit = internal::unit_for(peak.requested);
  std::string html = fmt::format(
      "<table><tr><th>category</th><th class=\"bars\"></th><th class=\"n\">bytes</th><th class=\"n\">{}</th>"
      "<th class=\"n\">share</th></tr>",
      unit.name);
  for (const Category category : internal::display_order()) {
    const Bytes bytes = peak.categories[category];
    if (bytes.count() == 0) continue;
    html += fmt::format(
        "<tr><td>{}</td><td class=\"bars\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td></tr>",
        named(category), bar(category, bytes, peak.requested), with_thousands(bytes.count()),
        internal::in_unit(bytes, unit), escape(internal::share(bytes, peak.requested)));
  }
  return html + fmt::format(
                    "<tr class=\"total\"><td>total</td><td class=\"bars\"></td><td class=\"n\">{}</td><td "
                    "class=\"n\">{}</td><td></td></tr></table>",
                    with_thousands(peak.requested.count()), internal::in_unit(peak.requested, unit));
}

std::string tensors_table(const PeakSummary& peak) {
  const Unit unit = internal::unit_for(peak.requested);
  std::string html = fmt::format(
      "<table><tr><th>category</th><th>what, or where it was made</th><th>shape</th><th class=\"n\">count</th>"
      "<th class=\"n\">{}</th><th class=\"n\">share</th><th>what can shrink it</th></tr>",
      unit.name);
  for (const internal::TensorGroup& group : internal::groups(peak.tensors, kGroups)) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"code\">{}</td><td class=\"code\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td>"
        "<td class=\"n\">{}</td><td class=\"advice\">{}</td></tr>",
        named(group.category), escape(group.name), escape(group.shape), group.count,
        internal::in_unit(group.bytes, unit), escape(internal::share(group.bytes, peak.requested)),
        internal::shrinks_by(group.category));
  }
  return html + "</table>";
}

/// What stands still, and the place of what the script draws from the history `id` instead.
std::string two_ways(const std::string& still, std::string_view drawn, std::string_view id,
                     const std::string& attributes = "") {
  return fmt::format("<div class=\"still\">{}</div><div class=\"moves {}\" data-history=\"{}\"{}></div>", still, drawn,
                     id, attributes);
}

std::string tensors_section(const PeakSummary& peak, const History& history, std::string_view id) {
  if (peak.tensors.empty()) return "";
  if (history.events.empty()) {
    return section("Largest tensors at the peak", "Alike ones are one row; * stands for a layer's number.",
                   tensors_table(peak));
  }
  return fmt::format("<div class=\"moves\">{}</div>",
                     section("The peak by module", internal::where(peak),
                             fmt::format("<div class=\"moves map-live\" data-history=\"{}\"></div>", id))) +
         section("Tensors at the peak", "Alike ones are one row; * stands for a layer's number.",
                 two_ways(tensors_table(peak), "tensors-live", id));
}

std::string peak_sections(const PeakSummary& peak, const History& history, std::string_view id) {
  std::string note = internal::where(peak);
  if (peak.card) note += "; tensors " + internal::beside_tensors(peak, internal::unit_for(peak.requested));
  return section("At the peak", note, categories(peak)) + tensors_section(peak, history, id);
}

std::vector<trace::CategoryBytes> all_of(const Curve& curve) {
  std::vector<trace::CategoryBytes> all;
  for (const Curve::Point& point : curve.points) all.push_back(point.live);
  return all;
}

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

std::string memory_section(const std::string& title, const std::string& note, const Shown& shown, const Limit& limit,
                           const Shown* over = nullptr) {
  const std::string still = internal::memory_chart(shown.curve, limit.bytes, over ? &over->curve : nullptr, limit.name);
  std::string attributes;
  if (limit.bytes) {
    attributes = fmt::format(" data-limit=\"{}\" data-limit-name=\"{} {}\"", limit.bytes->count(), escape(limit.name),
                             to_string(*limit.bytes));
  }
  if (over) attributes += fmt::format(" data-over=\"{}\"", over->id);
  return section(title, note,
                 internal::legend(all_of(shown.curve)) +
                     (shown.history.events.empty() ? still : two_ways(still, "memory-live", shown.id, attributes)));
}

std::string data_of(const Shown& shown) {
  return shown.history.events.empty() ? "" : internal::history_script(shown.id, shown.history) + "\n";
}

/// For tensors: on a card what the driver's context leaves.
Limit limit_of(Bytes budget, const PeakSummary& peak) {
  if (!peak.card) return {budget};
  return {budget - peak.card->context, "budget less context"};
}

std::string plan_memory(const Planned& planned) {
  if (planned.curve.points.empty()) return "";
  const Shown shown{planned.curve, planned.history, "predicted"};
  return memory_section("Memory over time", "Predicted by a dry run under that plan; nothing was allocated.", shown,
                        limit_of(planned.budget, planned.peak)) +
         data_of(shown);
}

std::string suggestions(const Estimate& estimate) {
  std::string html = "<table><tr><th>change</th><th class=\"n\">peak</th><th class=\"n\">step</th><th>result</th></tr>";
  for (const Suggestion& suggestion : estimate.suggestions) {
    html +=
        fmt::format("<tr class=\"{}\"><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}, {}</td></tr>",
                    suggestion.fits ? "fits" : "over", escape(suggestion.change), to_string(suggestion.peak),
                    internal::seconds(suggestion.step_seconds), suggestion.fits ? "fits" : "too much",
                    internal::result_of(suggestion));
  }
  return html + "</table>";
}

std::string next(const std::string& command) {
  return command.empty() ? "" : section("Next", "", "<code>" + escape(command) + "</code>");
}

std::string frontier(const std::vector<internal::FrontierRow>& rows) {
  Bytes largest;
  for (const auto& row : rows) largest = std::max(largest, row.candidate.peak);
  const Unit unit = internal::unit_for(largest);
  std::string html = fmt::format(
      "<table><tr><th class=\"n\">peak {}</th><th class=\"n\">step</th><th class=\"n\">vs fastest</th>"
      "<th>change from plain training</th><th></th></tr>",
      unit.name);
  for (const auto& row : rows) {
    html += fmt::format(
        "<tr class=\"{}\"><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
        row.best   ? "best"
        : row.fits ? "fits"
                   : "over",
        internal::in_unit(row.candidate.peak, unit), internal::seconds(row.candidate.step_time.count()), row.versus,
        escape(row.change),
        row.best   ? "chosen"
        : row.fits ? "fits"
                   : "over");
  }
  return html + "</table>";
}

std::string plan_body(const Planned& planned, const plan::Solution& solution) {
  const auto rows = internal::frontier_rows(planned, solution, kFrontier);
  std::string body = internal::verdict("FITS: " + internal::needs(solution.best.peak, planned.budget), true,
                                       internal::budget_note(planned));
  body += cards({{"plan", plan::describe(solution.best.plan, planned.modules)},
                 {"predicted step", internal::seconds(solution.best.step_time.count())},
                 {"plain training", to_string(solution.unconstrained.peak)},
                 {"search", fmt::format("{} plans, {}", solution.simulated, internal::proof(solution.gap))},
                 {"result", std::string(internal::result_of(plan::equivalence(solution.best.plan)))}});
  body += section("Memory against time",
                  "Every plan was dry-run; no other plan is both faster and smaller than one on the line. " +
                      internal::step_times(planned),
                  internal::frontier_chart(rows, planned.budget) + frontier(rows));
  return body + plan_memory(planned) + peak_sections(planned.peak, planned.history, "predicted") +
         next(internal::next_command(planned));
}

std::string plan_body(const Planned& planned, const plan::Infeasible& infeasible) {
  PeakSummary floor = planned.peak;
  floor.tensors = infeasible.tensors;
  return internal::verdict(
             "DOES NOT FIT: the smallest plan " + internal::needs(infeasible.smallest.peak, planned.budget), false,
             infeasible.advice) +
         cards({{"smallest plan", plan::describe(infeasible.smallest.plan, planned.modules)},
                {"search", fmt::format("{} plans", infeasible.simulated)}}) +
         plan_memory(planned) + peak_sections(floor, planned.history, "predicted");
}

std::string compared(const FitSummary& fit) {
  const Bytes whole = std::max(fit.predicted.requested, fit.measured.requested);
  std::string html =
      "<table><tr><th>category</th><th class=\"bars\">predicted above, measured below</th><th class=\"n\">predicted, "
      "bytes</th>"
      "<th class=\"n\">measured, bytes</th><th class=\"n\">difference</th></tr>";
  const auto row = [&](const std::string& name, const std::string& bars, Bytes predicted, Bytes measured, bool total) {
    const Bytes apart = measured - predicted;
    html += fmt::format(
        "<tr{}><td>{}</td><td class=\"bars\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td></tr>",
        total ? " class=\"total\"" : "", name, bars, with_thousands(predicted.count()),
        with_thousands(measured.count()), apart.count() == 0 ? "equal" : with_thousands(apart.count()));
  };
  for (const Category category : internal::display_order()) {
    const Bytes predicted = fit.predicted.categories[category], measured = fit.measured.categories[category];
    if (predicted.count() == 0 && measured.count() == 0) continue;
    row(named(category), bar(category, predicted, whole) + bar(category, measured, whole), predicted, measured, false);
  }
  row("total", "", fit.predicted.requested, fit.measured.requested, true);
  return html + "</table>";
}

std::string fit_memory(const FitSummary& fit) {
  const Shown measured{fit.measured_curve, fit.measured_history, "measured"};
  const Shown predicted{fit.predicted_curve, fit.predicted_history, "predicted"};
  const Limit limit{fit.budget};
  const std::string data = data_of(measured) + data_of(predicted);
  if (!fit.predicted_curve.points.empty() && internal::comparable(fit.measured_curve, fit.predicted_curve) &&
      internal::comparable(fit.measured_history, fit.predicted_history)) {
    return memory_section("Memory over time",
                          "Measured; the dashed outline is what was predicted before anything was allocated.", measured,
                          limit, &predicted) +
           data;
  }
  return memory_section("Memory over time, predicted", "Before anything was allocated.", predicted, limit) +
         memory_section("Memory over time, measured", "", measured, limit) + data;
}

std::string files(const FitSummary& fit) {
  return fmt::format(
      "<table><tr><td class=\"code\">{}</td><td>the run's folder</td></tr>"
      "<tr><td class=\"code\">checkpoints/</td><td>weights, optimizer, position: one folder a saved step</td></tr>"
      "<tr><td class=\"code\">job.toml, plan.toml</td><td>what was trained, and how it was made to fit</td></tr>"
      "<tr><td class=\"code\">log.jsonl</td><td>every step's loss</td></tr></table>",
      escape(fit.run_dir));
}
}  // namespace

namespace {
std::vector<std::pair<std::string, std::string>> cards_of(const Estimate& estimate) {
  std::vector<std::pair<std::string, std::string>> cards = {
      {estimate.peak.card ? "peak of tensors" : "peak", to_string(estimate.peak.requested)}};
  if (estimate.peak.card) {
    cards.emplace_back("reserved", to_string(estimate.peak.card->reserved));
    cards.emplace_back("with CUDA context", to_string(estimate.peak.card->on_card()));
  }
  cards.emplace_back("budget", to_string(estimate.budget));
  cards.emplace_back("parameters", with_thousands(estimate.parameters));
  cards.emplace_back("device memory", to_string(estimate.capacity));
  cards.emplace_back("predicted in", internal::seconds(estimate.elapsed_seconds));
  return cards;
}
}  // namespace

namespace {
std::string notes(const Estimate& estimate) {
  std::string all = internal::budget_note(estimate);
  for (const std::string& sentence : internal::inexact(estimate)) all += (all.empty() ? "" : " ") + sentence;
  return all;
}
}  // namespace

std::string html(const Estimate& estimate) {
  std::string body = internal::verdict(
      (estimate.fits ? "FITS: " : "DOES NOT FIT: ") + internal::needs(estimate.peak.needed(), estimate.budget),
      estimate.fits, notes(estimate));
  body += cards(cards_of(estimate));
  const Shown shown{estimate.curve, estimate.history, "predicted"};
  body += memory_section("Memory over time", "Predicted by a dry run; nothing was allocated.", shown,
                         limit_of(estimate.budget, estimate.peak));
  body += peak_sections(estimate.peak, estimate.history, "predicted") + data_of(shown);
  if (!estimate.suggestions.empty()) {
    body +=
        section(estimate.fits ? "Could be smaller" : "Try first", "Each change was dry-run.", suggestions(estimate));
  }
  body += next(internal::next_command(estimate));
  return internal::page("cinch estimate", estimate.environment, estimate.job, body);
}

std::string html(const Planned& planned) {
  const std::string body = std::visit([&](const auto& result) { return plan_body(planned, result); }, planned.result);
  return internal::page("cinch plan", planned.environment, planned.job, body);
}

std::string html(const FitSummary& fit) {
  const bool equal = fit.predicted.requested == fit.measured.requested;
  const std::string note = fit.divergence ? "First difference: " + *fit.divergence : "";
  std::string body = internal::verdict(
      internal::outcome(fit) + ": peak " + internal::exact(fit.measured.requested) + ", " + internal::agreement(fit),
      equal && !fit.interrupted, note);
  body += cards({{"peak", to_string(fit.measured.requested)},
                 {"budget, a hard cap", fit.budget ? to_string(*fit.budget) : "none"},
                 {"plan", plan::describe(fit.plan, fit.modules)},
                 {"step, median", internal::seconds(fit.step_seconds.p50)},
                 {"speed", fmt::format("{:.1f} samples/s", fit.samples_per_second)},
                 {"in all", internal::seconds(fit.elapsed_seconds)},
                 {"reserved for tensors", to_string(fit.reserved)},
                 {"resident, whole process", to_string(fit.resident)}});
  body += fit_memory(fit);
  body += section("Predicted and measured, at the peak", internal::where(fit.measured), compared(fit));
  body += section(
      "Loss",
      fmt::format("A step took {} (median), {} (99 of 100), {} (longest).", internal::seconds(fit.step_seconds.p50),
                  internal::seconds(fit.step_seconds.p99), internal::seconds(fit.step_seconds.max)),
      internal::loss_chart(fit));
  if (!fit.sample.empty()) body += section("The model writes", "", "<pre>" + escape(fit.sample) + "</pre>");
  body += tensors_section(fit.measured, fit.measured_history, "measured");
  if (!fit.run_dir.empty()) body += section("Files", "", files(fit));
  body += next(internal::next_command(fit));
  return internal::page("cinch train", fit.environment, fit.job, body);
}
}  // namespace cinch::report
