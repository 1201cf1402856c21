#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cinch/core/text.h"
#include "cinch/report/internal/answers.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/page.h"
#include "cinch/report/internal/page_parts.h"
#include "cinch/report/questions.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::escape;
using internal::section;
using internal::Unit;

std::string joined(const std::vector<std::string>& sentences) { return fmt::format("{}", fmt::join(sentences, " ")); }

/// All values that were tried, smallest first.
std::string tried_table(const Largest& largest) {
  std::vector<Largest::Tried> rows = largest.tried;
  std::ranges::sort(rows, {}, &Largest::Tried::value);
  std::string html = fmt::format(
      "<table><tr><th class=\"n\">{}</th><th class=\"n\">peak</th><th>plan that fits, or the "
      "smallest</th><th></th></tr>",
      escape(largest.what));
  for (const Largest::Tried& row : rows) {
    html += fmt::format("<tr class=\"{}\"><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
                        row.value == largest.value && row.fits ? "best"
                        : row.fits                             ? "fits"
                                                               : "over",
                        with_thousands(row.value), to_string(row.candidate.peak),
                        escape(plan::describe(row.candidate.plan, largest.planned.modules)),
                        row.fits ? "fits" : "too much");
  }
  return html + "</table>";
}
}  // namespace

std::string html(const Largest& largest) {
  const Planned& planned = largest.planned;
  const auto* solution = std::get_if<plan::Solution>(&planned.result);
  std::string body =
      internal::verdict(internal::answer(largest), solution != nullptr, joined(internal::remarks(largest)));
  if (solution) {
    body += internal::cards({{largest.key, with_thousands(largest.value)},
                             {"plan", plan::describe(solution->best.plan, planned.modules)},
                             {"predicted step", internal::seconds(solution->best.step_time.count())},
                             {"budget", to_string(planned.budget)},
                             {"search", fmt::format("{} values, {} plans", largest.tried.size(), largest.simulated)}});
  }
  body += section("Values that were tried", largest.limit, tried_table(largest));
  const internal::Shown shown{planned.curve, planned.history, "predicted"};
  if (!planned.curve.points.empty()) {
    body +=
        internal::memory_section("Memory over time", "Predicted by a dry run under that plan; nothing was allocated.",
                                 shown, internal::limit_of(planned.budget, planned.peak)) +
        internal::data_of(shown);
  }
  body += internal::peak_sections(planned.peak, planned.history, "predicted") +
          internal::next(internal::next_command(largest));
  return internal::page("cinch plan --maximize " + largest.what, planned.environment, planned.job, body);
}

std::string html(const Cards& cards) {
  const bool any = internal::smallest_card(cards, CardAnswer::Fit::kPlanned) != nullptr;
  std::string table =
      "<table><tr><th>card</th><th class=\"n\">has</th><th class=\"n\">plain training</th><th class=\"n\">needs</th>"
      "<th class=\"n\">step</th><th>result</th></tr>";
  for (const CardAnswer& card : cards.cards) {
    const bool fits = card.fit != CardAnswer::Fit::kNot;
    table += fmt::format("<tr class=\"{}\"><td>{}</td>", fits ? "fits" : "over", escape(card.device));
    for (const std::string& figure : {to_string(card.memory), to_string(card.plain), to_string(card.candidate.peak),
                                      fits ? internal::seconds(card.candidate.step_time.count()) : std::string()})
      table += fmt::format("<td class=\"n\">{}</td>", figure);
    table += fmt::format("<td>{}</td></tr>", escape(internal::result_of(card, cards.modules)));
  }
  const std::string body =
      internal::verdict(internal::answer(cards), any, "") +
      section("Cards by memory",
              "Plans are the fastest that half a second's search finds. Steps: by the data sheets' rates.",
              table + "</table>") +
      internal::next(internal::next_command(cards));
  return internal::page("cinch plan --device all", cards.environment, cards.job, body);
}
}  // namespace cinch::report
