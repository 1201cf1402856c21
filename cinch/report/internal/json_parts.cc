#include "cinch/report/internal/json_parts.h"

#include <cmath>

#include "cinch/core/version.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {

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
  for (const trace::Category category : display_order()) {
    result[std::string(name_of(category))] = bytes[category].count();
  }
  return result;
}

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
          {"autocast", name_of(plan.autocast)},
          {"alloc_conf", plan.alloc_conf},
          {"equivalence", name_of(plan::equivalence(plan))}};
}

ordered_json candidate(const plan::Candidate& candidate) {
  return {{"plan", plan_object(candidate.plan)},
          {"peak_bytes", candidate.peak.count()},
          {"step_seconds", number(candidate.step_time.count())}};
}
}  // namespace cinch::report::internal
