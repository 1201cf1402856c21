#include "cinch/report/internal/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {

/// Of a plan, one technique.
plan::Plan alone(plan::Plan plan, const plan::TechniqueInfo& kept) {
  for (const plan::TechniqueInfo& technique : plan::techniques())
    if (technique.key != kept.key && technique.used(plan)) technique.drop(plan);
  return plan;
}

std::string percent(double share) {
  const double value = 100 * std::abs(share);
  return value < 0.05 ? "0 %" : fmt::format("{:.{}f} %", value, value < 0.95 ? 1 : 0);
}

bool same(const plan::Candidate& a, const plan::Candidate& b) { return a.plan == b.plan; }

double bytes(const plan::Candidate& candidate) { return static_cast<double>(candidate.peak.count()); }
}  // namespace

std::string changes(const plan::Plan& from, const plan::Plan& to, std::size_t modules) {
  if (from == to) return "nothing";
  std::vector<std::string> begun, ended;
  for (const plan::TechniqueInfo& technique : plan::techniques()) {
    const plan::Plan before = alone(from, technique), after = alone(to, technique);
    if (before == after) continue;
    if (!technique.used(after)) {
      std::string name(technique.key);
      std::ranges::replace(name, '_', ' ');
      ended.push_back("no " + name);
    } else {
      const std::string words = plan::describe(after, modules);
      const bool others = technique.used(before) && plan::describe(before, modules) == words;
      begun.push_back(others ? words + " (others)" : words);
    }
  }
  begun.insert(begun.end(), ended.begin(), ended.end());
  return fmt::format("{}", fmt::join(begun, ", "));
}

std::string relative(double from, double to) {
  if (!(from > 0) || !std::isfinite(to)) return "?";
  const double change = to / from - 1;
  const std::string words = percent(change);
  return words == "0 %" ? words : (change > 0 ? "+" : "-") + words;
}

std::string exchange(const plan::Candidate& from, const plan::Candidate& to, std::size_t modules) {
  const auto words = [](double before, double after, std::string_view what) {
    const double change = before > 0 ? after / before - 1 : 0;
    return fmt::format("{} {} {}", percent(change), change > 0 ? "more" : "less", what);
  };
  const std::string time = words(from.step_time.count(), to.step_time.count(), "time"),
                    memory = words(bytes(from), bytes(to), "memory"), what = changes(from.plan, to.plan, modules);
  if (to.step_time > from.step_time) return fmt::format("for {}, {}: {}", time, memory, what);
  return fmt::format("for {}, {}: {}", memory, time, what);
}

std::vector<FrontierRow> frontier_rows(const Planned& planned, const plan::Solution& solution, std::size_t limit) {
  std::vector<plan::Candidate> shown = solution.frontier;
  for (const plan::Candidate& needed : {solution.best, solution.unconstrained}) {
    if (std::none_of(shown.begin(), shown.end(), [&](const auto& c) { return same(c, needed); }))
      shown.push_back(needed);
  }
  std::sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.step_time, b.peak) < std::tuple(b.step_time, a.peak);
  });
  const double fastest = shown.front().step_time.count();
  const std::size_t stride = (shown.size() + limit - 1) / limit;
  std::vector<FrontierRow> rows;
  const plan::Candidate* above = nullptr;  // The last row that no other beats.
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const plan::Candidate& candidate = shown[i];
    const bool best = same(candidate, solution.best), plain = same(candidate, solution.unconstrained);
    if (i % stride != 0 && !best && !plain && i + 1 != shown.size()) continue;
    FrontierRow row{.candidate = candidate, .best = best, .fits = candidate.peak <= planned.budget};
    row.beaten = above != nullptr && candidate.peak >= above->peak;
    row.plan = row.change = plan::describe(candidate.plan, planned.modules);
    row.versus = i == 0 ? "-" : relative(fastest, candidate.step_time.count());
    if (above != nullptr && !row.beaten) {
      row.change = changes(above->plan, candidate.plan, planned.modules);
      row.time = relative(above->step_time.count(), candidate.step_time.count());
      row.memory = relative(bytes(*above), bytes(candidate));
    }
    if (!row.beaten) above = &candidate;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> neighbours(const Planned& planned, const plan::Solution& solution) {
  const auto& points = solution.frontier;  // By rising peak.
  std::vector<std::string> sentences;
  const auto best = std::find_if(points.begin(), points.end(), [&](const auto& c) { return same(c, solution.best); });
  if (best == points.end()) return sentences;
  if (best != points.begin())
    sentences.push_back("Smaller: " + exchange(*best, *std::prev(best), planned.modules) + ".");
  if (const auto next = std::next(best); next != points.end())
    sentences.push_back("Faster:  " + exchange(*best, *next, planned.modules) + ".");
  return sentences;
}

std::string allow_flags(const Planned& planned, const plan::Plan& plan) {
  std::string flags;
  for (const plan::TechniqueInfo& technique : plan::techniques()) {
    if (!technique.used(plan) || std::ranges::find(planned.allowed, technique.key) != planned.allowed.end()) continue;
    flags += fmt::format("{}--allow {}", flags.empty() ? "" : " ", technique.key);
  }
  return flags;
}

std::string would_give(const Planned& planned, const plan::Candidate& from, const plan::WouldGive& give) {
  const plan::Candidate& to = give.candidate;
  const bool less = to.peak <= from.peak;
  const std::string time = relative(from.step_time.count(), to.step_time.count());
  return fmt::format("{} would give {} {}: {}, {} time{} ({})", allow_flags(planned, to.plan),
                     to_string(less ? from.peak - to.peak : to.peak - from.peak), less ? "less" : "more",
                     to_string(to.peak), time == "0 %" ? "same" : time, to.peak <= planned.budget ? ", FITS" : "",
                     result_of(plan::equivalence(to.plan)));
}
}  // namespace cinch::report::internal
