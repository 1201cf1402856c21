#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cinch/core/text.h"
#include "cinch/report/internal/answers.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/text_parts.h"
#include "cinch/report/questions.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::one_line;
using internal::Unit;
using internal::Writer;

void tried_row(Writer& out, const Largest& largest, const Largest::Tried& tried, const std::string& plan,
               const Unit& unit) {
  const Bytes budget = largest.planned.budget, peak = tried.candidate.peak;
  out.line("{} {:>10}{:>11}  {:<60} {}", tried.fits ? "▶" : " ", with_thousands(tried.value),
           internal::in_unit(peak, unit), one_line(plan, 60),
           tried.fits ? "FITS, " + to_string(budget - peak) + " spare" : to_string(peak - budget) + " too much");
}

void proof_table(Writer& out, const Largest& largest, const plan::Solution& solution) {
  const Unit unit = internal::unit_for(std::max(solution.best.peak, largest.planned.budget));
  const std::size_t modules = largest.planned.modules;
  out.line("{}", out.bold(fmt::format("  {:>10}{:>11}  {}", largest.what, fmt::format("peak {}", unit.name), "plan")));
  tried_row(out, largest, {largest.value, true, solution.best}, plan::describe(solution.best.plan, modules), unit);
  if (largest.beyond) {
    tried_row(out, largest, *largest.beyond, "smallest: " + plan::describe(largest.beyond->candidate.plan, modules),
              unit);
  }
  if (!largest.limit.empty()) out.line("  Beyond it the job ends: {}.", one_line(largest.limit, 200));
}
}  // namespace

std::string text(const Largest& largest, bool colour) {
  Writer out(colour);
  const Planned& planned = largest.planned;
  const std::string search =
      fmt::format("{} value{}, {} plans dry-run, {}", largest.tried.size(), largest.tried.size() == 1 ? "" : "s",
                  largest.simulated, internal::seconds(largest.elapsed_seconds));
  const auto* solution = std::get_if<plan::Solution>(&planned.result);
  if (solution == nullptr) {
    out.line("{}   ({})", out.verdict(internal::answer(largest), false), search);
    return out.take() + text(planned, colour);
  }
  out.line("{}   ({})", out.verdict(internal::answer(largest), true), search);
  internal::notes(out, internal::budget_note(planned), internal::remarks(largest));
  proof_table(out, largest, *solution);
  out.blank();
  out.line("Plan: {}   (step {}, {})", plan::describe(solution->best.plan, planned.modules),
           internal::seconds(solution->best.step_time.count()), internal::proof(solution->gap));
  out.line("Peak: {}", internal::where(planned.peak));
  internal::categories_table(out, planned.peak, 0);
  out.blank();
  out.line("Result: {} ({}).", internal::result_of(plan::equivalence(solution->best.plan)),
           name_of(plan::equivalence(solution->best.plan)));
  out.line("{}", internal::step_times(planned));
  if (!planned.plan_file.empty()) out.line("Wrote {}", one_line(planned.plan_file));
  const std::string next = internal::next_command(largest);
  if (!next.empty()) out.line("Next: {}", next);
  return out.take();
}

std::string text(const Cards& cards, bool colour) {
  Writer out(colour);
  const bool any = internal::smallest_card(cards, CardAnswer::Fit::kPlanned) != nullptr;
  out.line("{}   ({} plans dry-run, {}, nothing allocated)", out.verdict(internal::answer(cards), any), cards.simulated,
           internal::seconds(cards.elapsed_seconds));
  out.blank();
  Bytes largest;
  for (const CardAnswer& card : cards.cards) largest = std::max({largest, card.memory, card.candidate.peak});
  const Unit unit = internal::unit_for(largest);
  out.line("{}", out.bold(fmt::format("{:<15}{:>11}{:>10}{:>10}{:>10}  {}", "card", fmt::format("has {}", unit.name),
                                      "plain", "needs", "step", "result")));
  for (const CardAnswer& card : cards.cards) {
    out.line("{:<15}{:>11}{:>10}{:>10}{:>10}  {}", one_line(card.device, 15), internal::in_unit(card.memory, unit),
             internal::in_unit(card.plain, unit), internal::in_unit(card.candidate.peak, unit),
             card.fit == CardAnswer::Fit::kNot ? "" : internal::seconds(card.candidate.step_time.count()),
             one_line(internal::result_of(card, cards.modules), 90));
  }
  out.blank();
  out.line("plain: plain training; needs: that, or the plan. The budget of a card is what it has less 2 %.");
  out.line(
      "Steps: the data sheets' rates, not measured. cinch plan --device NAME finds the fastest plan for one card.");
  const std::string next = internal::next_command(cards);
  if (!next.empty()) out.line("Next: {}", next);
  return out.take();
}
}  // namespace cinch::report
