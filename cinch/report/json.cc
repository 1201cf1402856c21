#include <cmath>
#include <nlohmann/json.hpp>

#include "cinch/core/version.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using nlohmann::ordered_json;

/// JSON has no NaN and no infinity.
ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

std::string close(const ordered_json& document) {
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json head(std::string_view schema, const Environment& environment, const std::string& job) {
  return {{"schema", schema},
          {"cinch", kVersion},
          {"libtorch", environment.libtorch},
          {"device", environment.device},
          {"threads", environment.threads},
          {"job", job}};
}

ordered_json categories(const trace::CategoryBytes& bytes) {
  ordered_json result;
  for (const trace::Category category : internal::display_order()) {
    result[std::string(name_of(category))] = bytes[category].count();
  }
  return result;
}

/// On a CPU nothing is rounded or reserved: all four sizes are the requested one.
ordered_json peak(const PeakSummary& summary) {
  const Bytes bytes = summary.requested;
  const CardBytes card = summary.card.value_or(CardBytes{bytes, bytes, Bytes()});
  return {{"requested_bytes", bytes.count()},
          {"allocated_bytes", card.allocated.count()},
          {"reserved_bytes", card.reserved.count()},
          {"device_bytes", card.on_card().count()},
          {"context_bytes", card.context.count()},
          {"step", summary.step},
          {"phase", name_of(summary.phase)},
          {"module", summary.module},
          {"op", summary.op},
          {"categories", categories(summary.categories)}};
}

ordered_json tensors(const std::vector<plan::PeakTensor>& tensors) {
  ordered_json result = ordered_json::array();
  for (const plan::PeakTensor& tensor : tensors) {
    result.push_back({{"bytes", tensor.bytes.count()},
                      {"category", name_of(tensor.category)},
                      {"name", tensor.name},
                      {"module", tensor.module},
                      {"op", tensor.op},
                      {"sizes", tensor.sizes},
                      {"dtype", name_of(tensor.dtype)}});
  }
  return result;
}

/// As in a plan file.
ordered_json plan_object(const plan::Plan& plan) {
  ordered_json activations = ordered_json::object();
  for (const auto& [module, policy] : plan.activations) activations[module] = name_of(policy);
  return {{"version", 1},
          {"micro_batch_size", plan.micro_batch_size},
          {"activations", activations},
          {"loss_chunk_size", plan.loss_chunk_size},
          {"optimizer",
           {{"state", name_of(plan.optimizer.state)},
            {"place", name_of(plan.optimizer.place)},
            {"in_backward", plan.optimizer.in_backward}}},
          {"equivalence", name_of(plan::equivalence(plan))}};
}

ordered_json candidate(const plan::Candidate& candidate) {
  return {{"plan", plan_object(candidate.plan)},
          {"peak_bytes", candidate.peak.count()},
          {"step_seconds", number(candidate.step_time.count())}};
}

ordered_json losses(const std::vector<FitSummary::StepLoss>& losses) {
  ordered_json result = ordered_json::array();
  for (const auto& [step, loss] : losses) result.push_back({{"step", step}, {"loss", number(loss)}});
  return result;
}

void add(ordered_json& document, const plan::Solution& solution) {
  document["fits"] = true;
  document["plan"] = plan_object(solution.best.plan);
  document["predicted"]["step_seconds"] = number(solution.best.step_time.count());
  document["gap"] = number(solution.gap);
  document["unconstrained"] = candidate(solution.unconstrained);
  document["frontier"] = ordered_json::array();
  for (const plan::Candidate& point : solution.frontier) document["frontier"].push_back(candidate(point));
  document["infeasible"] = nullptr;
  document["simulated"] = solution.simulated;
}

void add(ordered_json& document, const plan::Infeasible& infeasible) {
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
  document["simulated"] = infeasible.simulated;
}
}  // namespace

namespace {

ordered_json groups(const std::vector<ActivationGroup>& groups) {
  constexpr const char* kKinds[] = {"logits", "weight_copies", "blocks", "other"};  // In the order of Kind.
  ordered_json result = ordered_json::array();
  for (const ActivationGroup& group : groups) {
    result.push_back({{"kind", kKinds[static_cast<std::size_t>(group.kind)]},
                      {"name", group.name},
                      {"count", group.count},
                      {"bytes", group.bytes.count()}});
  }
  return result;
}

ordered_json runs_out(const std::optional<OutOfMemoryPlace>& place) {
  if (!place) return nullptr;
  return {{"asked_bytes", place->asked.count()},
          {"step", place->step},
          {"phase", name_of(place->phase)},
          {"module", place->module},
          {"op", place->op}};
}
}  // namespace

std::string json(const Estimate& estimate) {
  ordered_json document = head("cinch.estimate/1", estimate.environment, estimate.job);
  document["fits"] = estimate.fits;
  document["budget_bytes"] = estimate.budget.count();
  document["budget_given"] = estimate.budget_given;
  document["capacity_bytes"] = estimate.capacity.count();
  document["elapsed_seconds"] = number(estimate.elapsed_seconds);
  document["parameters"] = estimate.parameters;
  document["peak"] = peak(estimate.peak);
  document["categories_at_peak"] = categories(estimate.peak.categories);
  document["tensors_at_peak"] = tensors(estimate.peak.tensors);
  document["steps"] = ordered_json::array();
  for (const auto& [step, bytes] : estimate.peak.steps) {
    document["steps"].push_back({{"step", step}, {"peak_requested_bytes", bytes.count()}});
  }
  document["activation_groups"] = groups(estimate.groups);
  document["runs_out"] = runs_out(estimate.runs_out);
  document["step_seconds"] = number(estimate.step_seconds);
  document["bounded"] = estimate.bounded;
  document["by_shape_alone"] = estimate.by_shape_alone;
  document["suggestions"] = ordered_json::array();
  for (const Suggestion& suggestion : estimate.suggestions) {
    document["suggestions"].push_back({{"change", suggestion.change},
                                       {"peak_bytes", suggestion.peak.count()},
                                       {"step_seconds", number(suggestion.step_seconds)},
                                       {"fits", suggestion.fits},
                                       {"equivalence", name_of(suggestion.equivalence)},
                                       {"other_training", suggestion.other_training}});
  }
  return close(document);
}

std::string json(const Planned& planned) {
  ordered_json document = head("cinch.plan/1", planned.environment, planned.job);
  document["budget_bytes"] = planned.budget.count();
  document["budget_given"] = planned.budget_given;
  document["capacity_bytes"] = planned.capacity.count();
  document["predicted"]["peak"] = peak(planned.peak);
  std::visit([&](const auto& result) { add(document, result); }, planned.result);
  document["calibrated"] = planned.calibrated;
  document["plan_file"] = planned.plan_file.empty() ? ordered_json(nullptr) : ordered_json(planned.plan_file);
  document["elapsed_seconds"] = number(planned.elapsed_seconds);
  return close(document);
}

std::string json(const FitSummary& fit) {
  ordered_json document = head("cinch.train/1", fit.environment, fit.job);
  document["plan"] = plan_object(fit.plan);
  document["budget_bytes"] = fit.budget ? ordered_json(fit.budget->count()) : ordered_json(nullptr);
  document["predicted"]["peak"] = peak(fit.predicted);
  document["measured"]["peak"] = peak(fit.measured);
  document["measured"]["reserved_bytes"] = fit.reserved.count();
  document["measured"]["resident_bytes"] = fit.resident.count();
  document["equal"] = fit.predicted.requested == fit.measured.requested;
  document["divergence"] = fit.divergence ? ordered_json(*fit.divergence) : ordered_json(nullptr);
  document["steps"] = losses(fit.steps);
  document["evaluations"] = losses(fit.evaluations);
  document["step_seconds"] = {{"p50", number(fit.step_seconds.p50)},
                              {"p99", number(fit.step_seconds.p99)},
                              {"max", number(fit.step_seconds.max)}};
  document["alloc_retries"] = 0;  // A CPU allocator has nothing to retry with.
  document["samples_per_second"] = number(fit.samples_per_second);
  document["elapsed_seconds"] = number(fit.elapsed_seconds);
  document["resumed_at"] = fit.resumed_at;
  document["interrupted"] = fit.interrupted;
  document["run_dir"] = fit.run_dir.empty() ? ordered_json(nullptr) : ordered_json(fit.run_dir);
  document["sample"] = fit.sample;
  return close(document);
}
}  // namespace cinch::report
