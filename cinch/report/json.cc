#include <cmath>
#include <nlohmann/json.hpp>

#include "cinch/report/internal/format.h"
#include "cinch/report/internal/json_parts.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::categories;
using internal::close;
using internal::head;
using internal::number;
using internal::ordered_json;
using internal::peak;
using internal::plan_object;
using internal::tensors;

ordered_json losses(const std::vector<FitSummary::StepLoss>& losses) {
  ordered_json result = ordered_json::array();
  for (const auto& [step, loss] : losses) result.push_back({{"step", step}, {"loss", number(loss)}});
  return result;
}

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

std::string json(const FitSummary& fit) {
  ordered_json document = head("cinch.train/1", fit.environment, fit.job);
  document["already_done"] = fit.already_done.has_value();
  if (fit.already_done) {  // What nobody trained has no plan and no peaks.
    for (const char* key : {"plan", "equal", "divergence"}) document[key] = nullptr;
    for (const char* key : {"predicted", "measured"}) document[key]["peak"] = nullptr;
    for (const char* key : {"steps", "evaluations"}) document[key] = ordered_json::array();
    document["budget_bytes"] = fit.budget ? ordered_json(fit.budget->count()) : ordered_json(nullptr);
    document["resumed_at"] = fit.resumed_at;
    document["interrupted"] = false;
    document["run_dir"] = fit.run_dir;
    return close(document);
  }
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
