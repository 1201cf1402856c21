#include "cinch/plan/internal/would_give.h"

#include <optional>
#include <string_view>

namespace cinch::plan::internal {
namespace {
void give_all(Plan& plan, const Problem& problem, ActivationPolicy policy) {
  for (const std::string& path : problem.modules) plan.activations[path] = policy;
}

/// `plan` with a technique as it is used most.
Plan with(Plan plan, const Problem& problem, std::string_view technique) {
  if (technique == "checkpoint") give_all(plan, problem, ActivationPolicy::kCheckpoint);
  if (technique == "selective") give_all(plan, problem, ActivationPolicy::kSelective);
  if (technique == "offload") give_all(plan, problem, ActivationPolicy::kOffload);
  if (technique == "checkpoint_offload") give_all(plan, problem, ActivationPolicy::kCheckpointOffload);
  if (technique == "chunked_loss" && !problem.loss_chunks.empty()) plan.loss_chunk_size = problem.loss_chunks.back();
  if (technique == "step_in_backward") plan.optimizer.in_backward = true;
  if (technique == "adam8bit") plan.optimizer.state = OptimizerState::k8Bit;
  if (technique == "state_on_host") plan.optimizer.place = StatePlace::kHost;
  if (technique == "state_on_disk") plan.optimizer.place = StatePlace::kDisk;
  if (technique == "bf16") plan.autocast = Autocast::kBf16;
  if (technique == "fp16") plan.autocast = Autocast::kFp16;
  return plan;
}
}  // namespace

std::vector<WouldGive> would_give(const Problem& problem, const CostModel& costs, const Simulate& simulate,
                                  const Candidate& base) {
  std::vector<WouldGive> given;
  const auto run = [&](const Plan& plan) {
    const trace::Trace trace = simulate(plan);
    return Candidate{plan, bytes_on_device(problem, plan, trace), costs.step_time(trace)};
  };
  WouldGive together{"", base};
  int joined = 0;
  for (const TechniqueInfo& technique : techniques()) {
    if (problem.may(technique.key)) continue;
    const Plan plan = with(base.plan, problem, technique.key);
    if (plan == base.plan || !validate(problem, plan).empty()) continue;
    const Candidate alone = run(plan);
    const bool faster = base.peak <= problem.budget && alone.step_time < base.step_time;
    if (alone.peak < base.peak || faster) given.push_back({std::string(technique.key), alone});
    if (alone.peak >= base.peak) continue;
    const Plan all = with(together.candidate.plan, problem, technique.key);
    if (!validate(problem, all).empty()) continue;
    const Candidate joint = joined == 0 ? alone : run(all);
    if (joint.peak >= together.candidate.peak) continue;
    together.technique += (joined++ == 0 ? "" : ", ") + std::string(technique.key);
    together.candidate = joint;
  }
  if (joined > 1) given.push_back(std::move(together));
  return given;
}
}  // namespace cinch::plan::internal
