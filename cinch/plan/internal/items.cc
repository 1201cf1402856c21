#include "cinch/plan/internal/items.h"

#include <array>
#include <string_view>
#include <utility>

namespace cinch::plan::internal {
namespace {
struct Policy {
  std::string_view technique;
  ActivationPolicy policy;
};
constexpr std::array<Policy, 4> kPolicies{{{"checkpoint", ActivationPolicy::kCheckpoint},
                                           {"selective", ActivationPolicy::kSelective},
                                           {"offload", ActivationPolicy::kOffload},
                                           {"checkpoint_offload", ActivationPolicy::kCheckpointOffload}}};
}  // namespace

bool moves_away(ActivationPolicy policy) {
  return policy == ActivationPolicy::kOffload || policy == ActivationPolicy::kCheckpointOffload;
}

bool may_autocast(const Problem& problem, Autocast precision) {
  Plan plan;
  plan.autocast = precision;
  const std::string_view key = precision == Autocast::kBf16 ? "bf16" : "fp16";
  return precision == Autocast::kNone || (problem.may(key) && conflicts(plan, problem.facts).empty());
}

Items::Items(const Problem& problem, Plan division)
    : division_(std::move(division)), clips_(problem.facts.clips), modules_(problem.modules) {
  const auto legal = [&](const Plan& plan) { return conflicts(plan, problem.facts).empty(); };
  for (const auto& [technique, policy] : kPolicies)
    if (problem.may(technique)) policies_.push_back(policy);
  for (const std::int64_t size : problem.loss_chunks) {
    Plan plan = division_;
    plan.loss_chunk_size = size;
    if (problem.may("chunked_loss") && legal(plan)) losses_.push_back(size);
  }
  const auto add_state = [&](std::string_view technique, OptimizerPlan state) {
    Plan plan = division_;
    plan.optimizer = state;
    if (problem.may(technique) && legal(plan)) states_.push_back(state);
  };
  add_state("adam8bit", {.state = OptimizerState::k8Bit});
  add_state("state_on_host", {.place = StatePlace::kHost});
  add_state("state_on_disk", {.place = StatePlace::kDisk});
  Plan stepping = division_;
  stepping.optimizer.in_backward = true;
  if (problem.may("step_in_backward") && legal(stepping)) in_backward_.push_back(true);

  for (std::size_t k = 0; k < modules_.size(); ++k) offsets_.push_back(k * policies_.size());
  std::size_t next = modules_.size() * policies_.size();
  for (const std::size_t options : {losses_.size(), in_backward_.size(), states_.size()}) {
    offsets_.push_back(next);
    next += options;
  }
  offsets_.push_back(next);
}

Plan Items::plan(const Choice& choice) const {
  Plan plan = division_;
  for (std::size_t k = 0; k < modules_.size(); ++k)
    if (choice[k] != 0) plan.activations[modules_[k]] = policies_[choice[k]];
  plan.loss_chunk_size = losses_[choice[loss()]];
  plan.optimizer = states_[choice[state()]];
  plan.optimizer.in_backward = in_backward_[choice[gradients()]];
  return plan;
}
}  // namespace cinch::plan::internal
