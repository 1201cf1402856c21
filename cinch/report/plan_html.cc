#include <fmt/format.h>

#include "cinch/report/internal/format.h"
#include "cinch/report/internal/frontier_chart.h"
#include "cinch/report/internal/page.h"
#include "cinch/report/internal/page_parts.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::cards;
using internal::data_of;
using internal::escape;
using internal::limit_of;
using internal::memory_section;
using internal::next;
using internal::peak_sections;
using internal::section;
using internal::Shown;

constexpr std::size_t kFrontier = 40;  // Rows of the frontier.

std::string paragraphs(const std::vector<std::string>& sentences) {
  std::string html;
  for (const std::string& sentence : sentences) html += "<p>" + escape(sentence) + "</p>";
  return html;
}

std::string forbidden(const Planned& planned, const plan::Candidate& from, const std::vector<plan::WouldGive>& gives) {
  std::vector<std::string> sentences;
  sentences.reserve(gives.size());
  for (const plan::WouldGive& give : gives) sentences.push_back(internal::would_give(planned, from, give));
  return gives.empty() ? "" : section("Not allowed", "", paragraphs(sentences));
}

std::string smaller_jobs(const Planned& planned) {
  if (planned.smaller.empty()) return "";
  std::string html = "<table><tr><th>job</th><th class=\"n\">peak</th><th>with</th></tr>";
  for (const SmallerJob& smaller : planned.smaller) {
    html +=
        fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>", escape(smaller.what),
                    to_string(smaller.candidate.peak), escape(plan::describe(smaller.candidate.plan, planned.modules)));
  }
  return section("Smaller jobs that fit", "Each was dry-run.", html + "</table>");
}

std::string plan_memory(const Planned& planned) {
  if (planned.curve.points.empty()) return "";
  const Shown shown{planned.curve, planned.history, "predicted"};
  return memory_section("Memory over time", "Predicted by a dry run under that plan; nothing was allocated.", shown,
                        limit_of(planned.budget, planned.peak)) +
         data_of(shown);
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
                  internal::frontier_chart(planned, rows, solution.best, solution.would_give) +
                      paragraphs(internal::neighbours(planned, solution)) + internal::frontier_html(rows));
  body += forbidden(planned, solution.best, solution.would_give);
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
         forbidden(planned, infeasible.smallest, infeasible.would_give) + smaller_jobs(planned) + plan_memory(planned) +
         peak_sections(floor, planned.history, "predicted") + next(internal::next_command(planned));
}
}  // namespace

std::string html(const Planned& planned) {
  const std::string body = std::visit([&](const auto& result) { return plan_body(planned, result); }, planned.result);
  return internal::page("cinch plan", planned.environment, planned.job, body);
}
}  // namespace cinch::report
