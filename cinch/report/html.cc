#include <fmt/format.h>

#include <algorithm>

#include "cinch/core/text.h"
#include "cinch/report/internal/chart.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/history_data.h"
#include "cinch/report/internal/page.h"
#include "cinch/report/internal/page_parts.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::bar;
using internal::cards;
using internal::data_of;
using internal::escape;
using internal::Limit;
using internal::limit_of;
using internal::memory_section;
using internal::named;
using internal::next;
using internal::peak_sections;
using internal::section;
using internal::Shown;
using internal::tensors_section;
using trace::Category;

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

std::string html(const FitSummary& fit) {
  if (fit.already_done) {
    const std::string body = internal::verdict(internal::outcome(fit), true, "Nothing was trained.") +
                             section("Files", "", files(fit)) + next(internal::next_command(fit));
    return internal::page("cinch train", fit.environment, fit.job, body);
  }
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
