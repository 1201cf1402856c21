#include <fmt/format.h>

#include <algorithm>

#include "cinch/core/text.h"
#include "cinch/report/internal/card_text.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::one_line;
using internal::Unit;
using trace::Category;

constexpr std::size_t kGroups = 8;        // Rows of largest tensors,
constexpr std::size_t kFrontier = 12;     // of the frontier,
constexpr std::size_t kSampleLines = 12;  // of what the model wrote.

class Writer {
 public:
  explicit Writer(bool colour) : colour_(colour) {}

  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text_ += text + "\n";
  }
  void blank() { text_ += "\n"; }
  /// The verdict: bold, green when good and red when not.
  std::string verdict(const std::string& words, bool good) const {
    return colour_ ? fmt::format("\x1b[1;{}m{}\x1b[0m", good ? 32 : 31, words) : words;
  }
  std::string bold(const std::string& words) const { return colour_ ? "\x1b[1m" + words + "\x1b[0m" : words; }
  std::string take() { return std::move(text_); }

 private:
  bool colour_;
  std::string text_;
};

void categories_table(Writer& out, const PeakSummary& peak, std::int64_t parameters) {
  const Unit unit = internal::unit_for(peak.requested);
  out.line("{}", out.bold(fmt::format("{:<44}{:>17}{:>11}{:>7}", "", "bytes", unit.name, "share")));
  for (const Category category : internal::display_order()) {
    const Bytes bytes = peak.categories[category];
    if (bytes.count() == 0) continue;
    const bool count = category == Category::kParameter && parameters > 0;
    out.line("  {:<18}{:<24}{:>17}{:>11}{:>7}", internal::label(category),
             count ? with_thousands(parameters) + " numbers" : "", with_thousands(bytes.count()),
             internal::in_unit(bytes, unit), internal::share(bytes, peak.requested));
  }
  out.line("  {:<42}{:>17}{:>11}{:>7}", "total", with_thousands(peak.requested.count()),
           internal::in_unit(peak.requested, unit), internal::share(peak.requested, peak.requested));
  if (peak.card) out.line("  {}", internal::beside_tensors(peak, unit));
}

void tensors_table(Writer& out, const std::vector<plan::PeakTensor>& tensors, Bytes whole) {
  const auto groups = internal::groups(tensors, kGroups);
  if (groups.empty()) return;
  const Unit unit = internal::unit_for(whole);
  out.blank();
  out.line("{}", out.bold(fmt::format("{:<88}{:>11}{:>7}", "Largest tensors there", unit.name, "share")));
  for (const internal::TensorGroup& group : groups) {
    out.line("  {:<16}{:<40} {:<21}{:>7} {:>11}{:>7}", internal::label(group.category), one_line(group.name, 40),
             one_line(group.shape, 21), group.count > 1 ? fmt::format("×{}", group.count) : "",
             internal::in_unit(group.bytes, unit), internal::share(group.bytes, whole));
  }
}

/// An indented line each; an empty one ends them.
void notes(Writer& out, const std::string& budget, const std::vector<std::string>& others = {}) {
  if (!budget.empty()) out.line("  {}", budget);
  for (const std::string& sentence : others) out.line("  {}", sentence);
  out.blank();
}

void plan_body(Writer& out, const Planned& planned, const plan::Solution& solution) {
  out.line("{}   ({} plans dry-run, {}, {})",
           out.verdict("FITS: " + internal::needs(solution.best.peak, planned.budget), true), solution.simulated,
           internal::proof(solution.gap), internal::seconds(planned.elapsed_seconds));
  notes(out, internal::budget_note(planned));
  const auto rows = internal::frontier_rows(planned, solution, kFrontier);
  Bytes largest;
  for (const auto& row : rows) largest = std::max(largest, row.candidate.peak);
  const Unit unit = internal::unit_for(largest);
  out.line("{}", out.bold(fmt::format("  {:>11}{:>10}{:>12}  {}", "peak " + std::string(unit.name), "step",
                                      "vs fastest", "change from plain training")));
  for (const auto& row : rows) {
    const std::string verdict = !row.fits  ? "over"
                                : row.best ? "FITS, " + to_string(planned.budget - row.candidate.peak) + " spare"
                                           : "fits";
    out.line("{} {:>11}{:>10}{:>12}  {:<44} {}", row.best ? "▶" : " ", internal::in_unit(row.candidate.peak, unit),
             internal::seconds(row.candidate.step_time.count()), row.versus, one_line(row.change, 44), verdict);
  }
  const std::size_t points = solution.frontier.size();
  if (points > rows.size()) out.line("  … {} points on the frontier in all: --json has them", points);
  out.blank();
  out.line("Peak: {}", internal::where(planned.peak));
  categories_table(out, planned.peak, 0);
  out.blank();
  out.line("Result: {} ({}).", internal::result_of(plan::equivalence(solution.best.plan)),
           name_of(plan::equivalence(solution.best.plan)));
  out.line("{}", internal::step_times(planned));
  if (!planned.plan_file.empty()) out.line("Wrote {}", one_line(planned.plan_file));
}

void plan_body(Writer& out, const Planned& planned, const plan::Infeasible& infeasible) {
  out.line("{}   ({} plans dry-run, {})",
           out.verdict("DOES NOT FIT: the smallest plan " + internal::needs(infeasible.smallest.peak, planned.budget),
                       false),
           infeasible.simulated, internal::seconds(planned.elapsed_seconds));
  notes(out, internal::budget_note(planned));
  out.line("The floor: {}", plan::describe(infeasible.smallest.plan, planned.modules));
  out.line("Peak: {}", internal::where(planned.peak));
  categories_table(out, planned.peak, 0);
  tensors_table(out, infeasible.tensors, planned.peak.requested);
  if (!infeasible.advice.empty()) {
    out.blank();
    out.line("{}", infeasible.advice);
  }
}

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
  notes(out, internal::budget_note(estimate), internal::inexact(estimate));
  out.line("Peak: {}", internal::where(estimate.peak));
  categories_table(out, estimate.peak, estimate.parameters);
  tensors_table(out, estimate.peak.tensors, estimate.peak.requested);
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

std::string text(const Planned& planned, bool colour) {
  Writer out(colour);
  std::visit([&](const auto& result) { plan_body(out, planned, result); }, planned.result);
  const std::string next = internal::next_command(planned);
  if (std::holds_alternative<plan::Solution>(planned.result) && !next.empty()) out.line("Next: {}", next);
  return out.take();
}

std::string text(const FitSummary& fit, bool colour) {
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
