#pragma once
// Hand-made summaries for the tests of report/: small and round, so that the expected text can be checked by eye.

#include "cinch/core/bytes.h"
#include "cinch/report/questions.h"
#include "cinch/report/summaries.h"

namespace cinch::report::internal {

using namespace cinch::literals;
using trace::Category;
using trace::Phase;

inline Environment sample_environment() { return {"2.11.0", "cpu", 2}; }

/// 600 MiB, in the backward of step 2.
inline PeakSummary sample_peak() {
  PeakSummary peak;
  peak.requested = 600_MiB;
  peak.step = 2;
  peak.phase = Phase::kBackward;
  peak.module = "blocks.1.mlp";
  peak.op = "aten::gelu_backward";
  peak.categories[Category::kParameter] = 40_MiB;
  peak.categories[Category::kOptimizerState] = 80_MiB;
  peak.categories[Category::kGradient] = 20_MiB;
  peak.categories[Category::kInput] = 1_MiB;
  peak.categories[Category::kActivation] = 400_MiB;
  peak.categories[Category::kTemporary] = 59_MiB;
  peak.tensors = {
      {160_MiB, Category::kActivation, "", "blocks.0.attention", "aten::addmm", {32, 512, 2560}, DType::kFloat32},
      {160_MiB, Category::kActivation, "", "blocks.1.attention", "aten::addmm", {32, 512, 2560}, DType::kFloat32},
      {59_MiB, Category::kTemporary, "", "blocks.1.mlp", "aten::gelu_backward", {15466496}, DType::kFloat32},
      {20_MiB, Category::kParameter, "blocks.0.mlp.weight", "", "", {2048, 2560}, DType::kFloat32},
      {20_MiB, Category::kParameter, "blocks.1.mlp.weight", "", "", {2048, 2560}, DType::kFloat32}};
  peak.steps = {{0, 40_MiB}, {1, 560_MiB}, {2, 600_MiB}};
  return peak;
}

/// Initialization and two steps, each rising and falling; the peak is sample_peak()'s.
inline Curve sample_curve() {
  Curve curve;
  const auto add = [&](std::uint32_t step, Phase phase, Bytes state, Bytes gradients, Bytes activations,
                       Bytes temporaries) {
    Curve::Point point{step, phase, {}, curve.points.size() * 10};
    point.live[Category::kParameter] = 40_MiB;
    point.live[Category::kOptimizerState] = state;
    point.live[Category::kGradient] = gradients;
    point.live[Category::kInput] = step == 0 ? 0_B : 1_MiB;
    point.live[Category::kActivation] = activations;
    point.live[Category::kTemporary] = temporaries;
    curve.points.push_back(point);
    curve.peak = std::max(curve.peak, point.live.sum());
  };
  add(0, Phase::kInit, 0_B, 0_B, 0_B, 0_B);
  for (const std::uint32_t step : {1u, 2u}) {
    const Bytes state = step == 1 ? 0_B : 80_MiB;
    for (int i = 0; i <= 8; ++i) add(step, Phase::kForward, state, 0_B, 50_MiB * i, Bytes((8 << 20) * (i % 2)));
    add(step, Phase::kBackward, state, 20_MiB, 400_MiB, 59_MiB);
    for (int i = 7; i >= 0; --i) add(step, Phase::kBackward, state, Bytes((40 - 2 * i) << 20), 50_MiB * i, 16_MiB);
    add(step, Phase::kOptimizer, 80_MiB, 40_MiB, 0_B, 0_B);
    add(step, Phase::kOptimizer, 80_MiB, 0_B, 0_B, 0_B);
  }
  return curve;
}

inline Estimate sample_estimate() {
  Estimate estimate;
  estimate.environment = sample_environment();
  estimate.job = "job.toml";
  estimate.parameters = 10'485'760;
  estimate.budget = 500_MiB;
  estimate.capacity = 16_GiB;
  estimate.budget_given = true;
  estimate.fits = false;
  estimate.peak = sample_peak();
  estimate.curve = sample_curve();
  estimate.suggestions = {{"checkpoint 2 of 2 modules", 320_MiB, 0.5, true, plan::Equivalence::kBitwise},
                          {"micro-batch 16", 510_MiB, 0.375, false, plan::Equivalence::kReassociated}};
  estimate.elapsed_seconds = 0.08;
  return estimate;
}

inline plan::Plan sample_plan() {
  return {.micro_batch_size = 0, .activations = {{"blocks.0", plan::ActivationPolicy::kCheckpoint}}};
}

inline Planned sample_planned() {
  Planned planned;
  planned.environment = sample_environment();
  planned.job = "job.toml";
  planned.budget = 640_MiB;
  planned.capacity = 16_GiB;
  planned.budget_given = true;
  planned.modules = 2;
  planned.calibrated = true;
  planned.peak = sample_peak();
  planned.elapsed_seconds = 1.9;
  plan::Plan both = sample_plan(), divided = sample_plan();
  both.activations["blocks.1"] = plan::ActivationPolicy::kCheckpoint;
  divided.micro_batch_size = 16;
  plan::Solution solution;
  solution.unconstrained = {plan::Plan{}, 800_MiB, plan::Seconds(0.4)};
  solution.best = {sample_plan(), 600_MiB, plan::Seconds(0.45)};
  solution.frontier = {{divided, 250_MiB, plan::Seconds(0.6)},
                       {both, 320_MiB, plan::Seconds(0.5)},
                       solution.best,
                       solution.unconstrained};
  solution.simulated = 31;
  planned.result = solution;
  return planned;
}

inline Planned sample_infeasible() {
  Planned planned = sample_planned();
  planned.budget = 100_MiB;
  plan::Infeasible infeasible;
  infeasible.smallest = {sample_plan(), 600_MiB, plan::Seconds(0.6)};
  infeasible.tensors = planned.peak.tensors;
  infeasible.advice = "Parameters, gradients and optimizer state alone need 160 MiB.";
  infeasible.simulated = 31;
  planned.result = infeasible;
  return planned;
}

/// What sample_planned() would be if adam8bit were allowed, and with all that is lossy.
inline std::vector<plan::WouldGive> sample_gives() {
  plan::WouldGive one{"adam8bit", {sample_plan(), 540_MiB, plan::Seconds(0.44)}}, all = one;
  one.candidate.plan.optimizer.state = all.candidate.plan.optimizer.state = plan::OptimizerState::k8Bit;
  all.candidate.plan.autocast = plan::Autocast::kBf16;
  all.candidate.peak = 400_MiB;
  return {one, all};
}

/// 12 samples fit, 13 do not.
inline Largest sample_largest() {
  Largest largest;
  largest.what = "batch";
  largest.key = "train.batch_size";
  largest.own = 4;
  largest.value = 12;
  largest.planned = sample_planned();
  largest.planned.options = {"--set", "train.batch_size=12"};
  largest.beyond = {13, false, {sample_plan(), 650_MiB, plan::Seconds(0.5)}};
  largest.tried = {{4, true, {{}, 300_MiB, plan::Seconds(0.2)}},
                   *largest.beyond,
                   {12, true, {sample_plan(), 600_MiB, plan::Seconds(0.45)}}};
  largest.simulated = 57;
  largest.elapsed_seconds = 3;
  return largest;
}

inline Cards sample_cards() {
  using Fit = CardAnswer::Fit;
  Cards cards;
  cards.environment = sample_environment();
  cards.environment.device = "all";
  cards.job = "job.toml";
  cards.options = {"--set", "train.steps=3"};
  cards.modules = 2;
  cards.cards = {{"small", 8_GiB, 7_GiB, 20_GiB, Fit::kNot, {sample_plan(), 9_GiB, {}}},
                 {"middle", 16_GiB, 15_GiB, 20_GiB, Fit::kPlanned, {sample_plan(), 12_GiB, plan::Seconds(0.5)}},
                 {"large", 32_GiB, 31_GiB, 20_GiB, Fit::kPlain, {{}, 20_GiB, plan::Seconds(0.25)}}};
  cards.simulated = 40;
  cards.elapsed_seconds = 2;
  return cards;
}

inline FitSummary sample_fit() {
  FitSummary fit;
  fit.environment = sample_environment();
  fit.job = "job.toml";
  fit.plan = sample_plan();
  fit.modules = 2;
  fit.budget = 700_MiB;
  fit.predicted = fit.measured = sample_peak();
  fit.predicted_curve = fit.measured_curve = sample_curve();
  fit.reserved = 610_MiB;
  fit.resident = 1_GiB;
  for (int step = 1; step <= 300; ++step) fit.steps.push_back({step, 2.0 + 3.5 / (1 + step / 30.0)});
  fit.evaluations = {{0, 5.5}, {100, 3.0}, {200, 2.5}, {300, 2.375}};
  fit.step_seconds.p50 = 0.41;
  fit.step_seconds.p99 = 0.5;
  fit.step_seconds.max = 0.61;
  fit.samples_per_second = 76.1;
  fit.elapsed_seconds = 130;
  fit.run_dir = "runs/demo";
  fit.sample = "template <class T>\nvoid at::empty(int64_t size);\n";
  return fit;
}
}  // namespace cinch::report::internal
