#include <fmt/format.h>

#include <algorithm>

#include "cinch/core/text.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/frontier.h"
#include "cinch/report/internal/text_parts.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::one_line;
using internal::Unit;
using internal::Writer;

constexpr std::size_t kFrontier = 12;           // Rows of the frontier.
constexpr std::size_t kLeast = 26, kMost = 60;  // Width of what changes.

void frontier_table(Writer& out, const Planned& planned, const plan::Solution& solution) {
  const auto rows = internal::frontier_rows(planned, solution, kFrontier);
  Bytes largest;
  for (const auto& row : rows) largest = std::max(largest, row.candidate.peak);
  const Unit unit = internal::unit_for(largest);
  std::size_t width = kLeast;
  for (const auto& row : rows) width = std::max(width, std::min(kMost, row.change.size()));
  out.line("{}", out.bold(fmt::format("  {:>10}{:>9}{:>12}{:>9}{:>9}  {:<{}} ", "peak " + std::string(unit.name),
                                      "step", "vs fastest", "time", "memory", "change from the row above", width)));
  for (const auto& row : rows) {
    const std::string verdict = !row.fits  ? "over"
                                : row.best ? "FITS, " + to_string(planned.budget - row.candidate.peak) + " spare"
                                           : "fits";
    out.line("{} {:>10}{:>9}{:>12}{:>9}{:>9}  {:<{}}  {}", row.best ? "▶" : " ",
             internal::in_unit(row.candidate.peak, unit), internal::seconds(row.candidate.step_time.count()),
             row.versus, row.time, row.memory, one_line(row.change, width), width, verdict);
  }
  const std::size_t points = solution.frontier.size();
  if (points > rows.size()) out.line("  … {} points on the frontier in all: --json has them", points);
  for (const std::string& sentence : internal::neighbours(planned, solution)) out.line("  {}", one_line(sentence, 160));
}

/// Plans that the user has not allowed.
void forbidden(Writer& out, const Planned& planned, const plan::Candidate& from,
               const std::vector<plan::WouldGive>& gives) {
  if (gives.empty()) return;
  out.blank();
  out.line("{}", out.bold("Not allowed"));
  for (const plan::WouldGive& give : gives) out.line("  {}", internal::would_give(planned, from, give));
}

void plan_body(Writer& out, const Planned& planned, const plan::Solution& solution) {
  out.line("{}   ({} plans dry-run, {}, {})",
           out.verdict("FITS: " + internal::needs(solution.best.peak, planned.budget), true), solution.simulated,
           internal::proof(solution.gap), internal::seconds(planned.elapsed_seconds));
  internal::notes(out, internal::budget_note(planned));
  frontier_table(out, planned, solution);
  out.blank();
  out.line("Plan: {}", plan::describe(solution.best.plan, planned.modules));
  out.line("Peak: {}", internal::where(planned.peak));
  internal::categories_table(out, planned.peak, 0);
  forbidden(out, planned, solution.best, solution.would_give);
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
  internal::notes(out, internal::budget_note(planned));
  out.line("The floor: {}", plan::describe(infeasible.smallest.plan, planned.modules));
  out.line("Peak: {}", internal::where(planned.peak));
  internal::categories_table(out, planned.peak, 0);
  internal::tensors_table(out, infeasible.tensors, planned.peak.requested);
  if (!infeasible.advice.empty()) {
    out.blank();
    out.line("{}", infeasible.advice);
  }
  forbidden(out, planned, infeasible.smallest, infeasible.would_give);
  if (planned.smaller.empty()) return;
  out.blank();
  out.line("{}", out.bold("Smaller jobs that fit"));
  for (const SmallerJob& smaller : planned.smaller) {
    out.line("  {:<16} {} with {}", smaller.what, to_string(smaller.candidate.peak),
             plan::describe(smaller.candidate.plan, planned.modules));
  }
}
}  // namespace

std::string text(const Planned& planned, bool colour) {
  Writer out(colour);
  std::visit([&](const auto& result) { plan_body(out, planned, result); }, planned.result);
  const std::string next = internal::next_command(planned);
  if (!next.empty()) {
    if (std::holds_alternative<plan::Infeasible>(planned.result)) out.blank();
    out.line("Next: {}", next);
  }
  return out.take();
}
}  // namespace cinch::report
