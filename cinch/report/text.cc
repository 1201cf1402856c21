#include <fmt/format.h>

#include <algorithm>

#include "cinch/core/text.h"
#include "cinch/report/internal/card_text.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/text_parts.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::one_line;
using internal::Writer;
using trace::Category;

constexpr std::size_t kSampleLines = 12;  // Of what the model wrote.

std::string loss_words(const std::vector<FitSummary::StepLoss>& losses) {
  if (losses.empty()) return "-";
  const auto& first = losses.front();
  const auto& last = losses.back();
  if (losses.size() == 1) return fmt::format("{:.4f} at step {}", first.loss, first.step);
  return fmt::format("{:.4f} at step {} → {:.4f} at step {}", first.loss, first.step, last.loss, last.step);
}

void compare_table(Writer& out, const FitSummary& fit) {
  out.line("{}",
           out.bold(fmt::format("{:<20}{:>17}{:>17}{:>17}", "Peak, bytes", "predicted", "measured", "difference")));
  const auto row = [&](std::string_view name, Bytes predicted, Bytes measured) {
    const Bytes apart = measured - predicted;
    out.line("  {:<18}{:>17}{:>17}{:>17}", name, with_thousands(predicted.count()), with_thousands(measured.count()),
             apart.count() == 0 ? "equal"
                                : fmt::format("{}{}", apart.count() > 0 ? "+" : "", with_thousands(apart.count())));
  };
  for (const Category category : internal::display_order()) {
    const Bytes predicted = fit.predicted.categories[category], measured = fit.measured.categories[category];
    if (predicted.count() != 0 || measured.count() != 0) row(internal::label(category), predicted, measured);
  }
  row("total", fit.predicted.requested, fit.measured.requested);
  out.line("  predicted: {}", internal::where(fit.predicted));
  out.line("  measured:  {}", internal::where(fit.measured));
  if (fit.divergence) out.line("  first difference: {}", one_line(*fit.divergence));
  out.line("  reserved for them, what malloc and the arena add included: {}", to_string(fit.reserved));
  out.line("  resident memory of the whole process, LibTorch's code included: {}", to_string(fit.resident));
}

void sample_lines(Writer& out, const std::string& sample) {
  if (sample.empty()) return;
  out.blank();
  out.line("{}", out.bold("The model writes"));
  const std::string clean = internal::printable(sample);
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < clean.size() && lines < kSampleLines; ++lines) {
    const std::size_t end = std::min(clean.find('\n', begin), clean.size());
    out.line("  │ {}", one_line(clean.substr(begin, end - begin), 112));
    begin = end + 1;
  }
}
}  // namespace

std::string text(const Estimate& estimate, bool colour) {
  if (estimate.peak.card) return internal::card_text(estimate, colour);
  Writer out(colour);
  const std::string verdict = estimate.fits ? "FITS: " : "DOES NOT FIT: ";
  out.line("{}   ({}, nothing allocated)",
           out.verdict(verdict + internal::needs(estimate.peak.requested, estimate.budget), estimate.fits),
           internal::seconds(estimate.elapsed_seconds));
  internal::notes(out, internal::budget_note(estimate), internal::inexact(estimate));
  out.line("Peak: {}", internal::where(estimate.peak));
  internal::categories_table(out, estimate.peak, estimate.parameters);
  internal::tensors_table(out, estimate.peak.tensors, estimate.peak.requested);
  if (!estimate.suggestions.empty()) {
    out.blank();
    const std::size_t width = internal::change_width(estimate.suggestions, 44);
    out.line("{}", out.bold(fmt::format("{:<{}}{:>11}{:>11}  {}", estimate.fits ? "Could be smaller" : "Try first",
                                        width + 2, "peak", "step", "result")));
    for (const Suggestion& suggestion : estimate.suggestions) {
      out.line("  {:<{}}{:>11}{:>11}  {}{}", one_line(suggestion.change, width), width, to_string(suggestion.peak),
               internal::seconds(suggestion.step_seconds), suggestion.fits ? "FITS, " : "no: too much, ",
               internal::result_of(suggestion));
    }
  }
  out.blank();
  out.line("Next: {}", internal::next_command(estimate));
  return out.take();
}

namespace {
std::string already_done_text(const FitSummary& fit, bool colour) {
  Writer out(colour);
  out.line("{}", out.verdict(internal::outcome(fit), true));
  out.line("  Nothing was trained. The weights are in {}/checkpoints/step-{}.", one_line(fit.run_dir), fit.resumed_at);
  out.line("To go on, set train.steps above {}.", fit.resumed_at);
  const std::string next = internal::next_command(fit);
  if (!next.empty()) out.line("Next: {}", next);
  return out.take();
}
}  // namespace

std::string text(const FitSummary& fit, bool colour) {
  if (fit.already_done) return already_done_text(fit, colour);
  Writer out(colour);
  const bool equal = fit.predicted.requested == fit.measured.requested;
  out.line("{}", out.verdict(fmt::format("{}: peak {}, {}", internal::outcome(fit),
                                         internal::exact(fit.measured.requested), internal::agreement(fit)),
                             equal && !fit.interrupted));
  if (fit.budget) {
    const bool held = fit.measured.requested <= *fit.budget;
    out.line("  hard cap {}: {} {}", to_string(*fit.budget),
             to_string(held ? *fit.budget - fit.measured.requested : fit.measured.requested - *fit.budget),
             held ? "spare" : "over");
  }
  out.line("  plan: {} ({})", plan::describe(fit.plan, fit.modules), internal::result_of(plan::equivalence(fit.plan)));
  out.blank();
  compare_table(out, fit);
  out.blank();
  out.line("Loss, held out   {}", loss_words(fit.evaluations));
  out.line("Loss, training   {}", loss_words(fit.steps));
  out.line("Step             p50 {}, p99 {}, max {}; {:.1f} samples/s; {} in all",
           internal::seconds(fit.step_seconds.p50), internal::seconds(fit.step_seconds.p99),
           internal::seconds(fit.step_seconds.max), fit.samples_per_second, internal::seconds(fit.elapsed_seconds));
  sample_lines(out, fit.sample);
  if (!fit.run_dir.empty()) {
    out.blank();
    out.line("{}", out.bold("Files in " + one_line(fit.run_dir)));
    out.line("  report.html       this, with charts");
    out.line("  checkpoints/      weights, optimizer, position: one folder a saved step");
    out.line("  plan.toml, job.toml, log.jsonl");
  }
  const std::string next = internal::next_command(fit);
  if (!next.empty()) out.line("Next: {}", next);
  return out.take();
}
}  // namespace cinch::report
