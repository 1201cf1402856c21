#include "cinch/report/internal/format.h"
#include "cinch/report/internal/frontier.h"
#include "cinch/report/internal/json_parts.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::candidate;
using internal::close;
using internal::head;
using internal::next_command;
using internal::number;
using internal::ordered_json;
using internal::peak;
using internal::plan_object;
using internal::tensors;

/// With what it changes against the next one, which is larger and faster; null for the last.
ordered_json frontier_point(const Planned& planned, const std::vector<plan::Candidate>& frontier, std::size_t at) {
  ordered_json point = candidate(frontier[at]);
  point["exchange"] = nullptr;
  if (at + 1 == frontier.size()) return point;
  const plan::Candidate &from = frontier[at + 1], &to = frontier[at];
  point["exchange"] = {
      {"change", internal::changes(from.plan, to.plan, planned.modules)},
      {"time_ratio", number(to.step_time / from.step_time)},
      {"memory_ratio", number(static_cast<double>(to.peak.count()) / static_cast<double>(from.peak.count()))},
      {"sentence", internal::exchange(from, to, planned.modules)}};
  return point;
}

ordered_json would_give(const Planned& planned, const std::vector<plan::WouldGive>& gives) {
  ordered_json result = ordered_json::array();
  for (const plan::WouldGive& give : gives) {
    ordered_json entry = {{"technique", give.technique},
                          {"flags", internal::allow_flags(planned, give.candidate.plan)}};
    entry.update(candidate(give.candidate));
    entry["fits"] = give.candidate.peak <= planned.budget;
    result.push_back(std::move(entry));
  }
  return result;
}

void add(ordered_json& document, const Planned& planned, const plan::Solution& solution) {
  document["fits"] = true;
  document["plan"] = plan_object(solution.best.plan);
  document["predicted"]["step_seconds"] = number(solution.best.step_time.count());
  document["gap"] = number(solution.gap);
  document["unconstrained"] = candidate(solution.unconstrained);
  document["frontier"] = ordered_json::array();
  for (std::size_t i = 0; i < solution.frontier.size(); ++i)
    document["frontier"].push_back(frontier_point(planned, solution.frontier, i));
  document["infeasible"] = nullptr;
  document["would_give"] = would_give(planned, solution.would_give);
  document["smaller"] = ordered_json::array();
  document["simulated"] = solution.simulated;
}

void add(ordered_json& document, const Planned& planned, const plan::Infeasible& infeasible) {
  document["fits"] = false;
  document["plan"] = nullptr;
  document["predicted"]["step_seconds"] = number(infeasible.smallest.step_time.count());
  document["gap"] = nullptr;
  document["unconstrained"] = nullptr;
  document["frontier"] = ordered_json::array();
  document["infeasible"] = {{"floor_bytes", infeasible.smallest.peak.count()},
                            {"plan", plan_object(infeasible.smallest.plan)},
                            {"tensors", tensors(infeasible.tensors)},
                            {"advice", infeasible.advice}};
  document["would_give"] = would_give(planned, infeasible.would_give);
  document["smaller"] = ordered_json::array();
  for (const SmallerJob& job : planned.smaller) {
    ordered_json entry = candidate(job.candidate);
    entry["change"] = job.what;
    entry["set"] = job.sets;
    document["smaller"].push_back(std::move(entry));
  }
  document["simulated"] = infeasible.simulated;
}
}  // namespace

std::string json(const Planned& planned) {
  ordered_json document = head("cinch.plan/1", planned.environment, planned.job);
  document["budget_bytes"] = planned.budget.count();
  document["budget_given"] = planned.budget_given;
  document["capacity_bytes"] = planned.capacity.count();
  document["predicted"]["peak"] = peak(planned.peak);
  std::visit([&](const auto& result) { add(document, planned, result); }, planned.result);
  document["calibrated"] = planned.calibrated;
  document["plan_file"] = planned.plan_file.empty() ? ordered_json(nullptr) : ordered_json(planned.plan_file);
  const std::string next = next_command(planned);
  document["allowed"] = planned.allowed;
  document["next"] = next.empty() ? ordered_json(nullptr) : ordered_json(next);
  document["elapsed_seconds"] = number(planned.elapsed_seconds);
  return close(document);
}
}  // namespace cinch::report
