// LoRA across folders: predicted equals measured, the base takes neither gradients nor state, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/interchange/safetensors.h"
#include "cinch/models/model.h"
#include "cinch/techniques/lora.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {

const std::vector<std::string>& targets_of(ModelKind kind) {
  static const std::vector<std::string> gpt{"attention.qkv", "mlp.proj", "wte"}, llama{"q_proj", "down_proj", "lm_head"};
  return kind == ModelKind::kGpt ? gpt : llama;
}

std::shared_ptr<models::Model> adapted_model(const job::Job& job, ModelKind kind, BaseWeights base) {
  at::manual_seed(job.train.seed);
  auto model = models::build(job.model);
  const Lora lora(*model, {.targets = targets_of(kind), .rank = 4, .dropout = 0.1, .base = base});
  return model;
}

/// Initialization, two steps, an evaluation.
std::unique_ptr<train::Session> run(const job::Job& job, ModelKind kind, BaseWeights base, const plan::Plan& plan) {
  const auto next = [&] { return data::example_batch(job.data, job.model, job.train.batch_size); };
  auto session = [&] {
    const trace::PhaseScope init(trace::Phase::kInit, 0);
    return std::make_unique<train::Session>(adapted_model(job, kind, base), job.train, plan);
  }();
  for (std::uint32_t step = 1; step <= 2; ++step) train::run_step(*session, next, step);
  train::run_evaluation(*session, next, 1, 2);
  return session;
}

using Case = std::tuple<ModelKind, BaseWeights, job::Precision, bool>;
class LoraMemory : public ::testing::TestWithParam<Case> {
 protected:
  LoraMemory() {
    train::set_threads(2);
    job_ = small_job(kind(), 4);
    job_.train.precision = std::get<2>(GetParam());
    if (std::get<3>(GetParam())) plan_ = checkpoint_all(job_);
  }
  static ModelKind kind() { return std::get<0>(GetParam()); }
  void run() const { tests::run(job_, kind(), std::get<1>(GetParam()), plan_); }
  trace::Trace recorded() const {
    trace::Trace trace, until_end;
    const record::Recorder recorder(trace);
    const auto session = tests::run(job_, kind(), std::get<1>(GetParam()), plan_);
    until_end = trace;
    trace::classify(until_end);
    return until_end;
  }
  job::Job job_;
  plan::Plan plan_;
};

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const auto [kind, base, precision, checkpointed] = info.param;
  static const char* bases[] = {"AsTheyAre", "BFloat16", "Int8"};
  return name_of(kind) + bases[static_cast<int>(base)] + (precision == job::Precision::kBf16 ? "Bf16" : "Fp32") +
         (checkpointed ? "Checkpointed" : "");
}
INSTANTIATE_TEST_SUITE_P(Matrix, LoraMemory,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kLlama),
                                            ::testing::Values(BaseWeights::kAsTheyAre, BaseWeights::kBFloat16,
                                                              BaseWeights::kInt8),
                                            ::testing::Values(job::Precision::kFp32, job::Precision::kBf16),
                                            ::testing::Bool()),
                         name_of_case);

TEST_P(LoraMemory, IsPredictedToTheByte) {
  trace::Trace predicted, recorded, checked;
  {
    const dryrun::DryRun dry(predicted, device::find("cpu"));
    run();
  }
  {
    const record::Recorder recorder(recorded);
    run();
  }
  EXPECT_EQ(trace::compare_phase_ends(predicted, recorded).value_or("no difference"), "no difference");
  const trace::Timeline left(predicted), right(recorded);
  EXPECT_GT(left.peak().bytes, Bytes());
  EXPECT_EQ(left.peak().bytes, right.peak().bytes);
  for (std::uint32_t step = 1; step <= 2; ++step) EXPECT_EQ(left.peak(step).bytes, right.peak(step).bytes) << step;
  const dryrun::internal::CheckRules check;
  {
    const dryrun::DryRun dry(checked, device::find("cpu"));
    run();
  }
  EXPECT_THAT(dryrun::internal::CheckRules::faults(), ::testing::IsEmpty());
}

/// Live when the phase of that step ended.
trace::CategoryBytes live_after(const trace::Trace& trace, std::uint32_t step, trace::Phase phase) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < trace.events().size(); ++i)
    if (trace.events()[i].step == step && trace.events()[i].phase == phase) last = i;
  return trace::Timeline(trace).live_by_category(last);
}

/// As recorded: gradients as large as the adapters, AdamW's state twice that, and a step each.
TEST_P(LoraMemory, TheBaseTakesNeitherGradientsNorState) {
  const auto trace = recorded();
  Bytes adapters;
  std::int64_t count = 0;
  for (const auto& parameter : adapted_model(job_, kind(), std::get<1>(GetParam()))->parameters()) {
    if (!parameter.requires_grad()) continue;
    adapters += Bytes(static_cast<std::int64_t>(parameter.nbytes()));
    ++count;
  }
  EXPECT_EQ(live_after(trace, 1, trace::Phase::kBackward)[trace::Category::kGradient], adapters);
  const auto state = live_after(trace, 2, trace::Phase::kOptimizer)[trace::Category::kOptimizerState];
  EXPECT_GE(state, adapters * 2);
  EXPECT_LE(state, adapters * 2 + Bytes(4 * count)) << "and steps";
}

/// After Module::to() adapters are where the weights are, and so are the scales of weights that are kept rounded.
TEST(LoraMoves, ToAnotherDevice) {
  for (const auto base : {BaseWeights::kAsTheyAre, BaseWeights::kBFloat16, BaseWeights::kInt8}) {
    const auto job = small_job(ModelKind::kGpt, 4);
    trace::Trace trace;
    const dryrun::DryRun dry(trace, device::find("a100-80gb"));
    const auto model = adapted_model(job, ModelKind::kGpt, base);
    model->to(at::kCUDA);
    auto batch = data::example_batch(job.data, job.model, 4);
    batch.inputs = batch.inputs.to(at::kCUDA);
    batch.targets = batch.targets.to(at::kCUDA);
    model->loss_sum(batch).backward();
    int adapters = 0;
    for (const auto& parameter : model->parameters()) {
      EXPECT_TRUE(parameter.is_cuda());
      EXPECT_EQ(parameter.grad().defined(), parameter.requires_grad());
      adapters += parameter.requires_grad() ? 1 : 0;
    }
    EXPECT_EQ(adapters, 2 * (3 + 3 + 1));
  }
}

TEST(LoraFiles, AdaptersAloneGoThroughSafetensors) {
  const auto job = small_job(ModelKind::kLlama, 4);
  at::manual_seed(1);
  const auto model = models::build(job.model), other = models::build(job.model);
  const LoraOptions options{.targets = {"q_proj", "embed_tokens"}, .rank = 4, .prefix = "model."};
  const Lora trained(*model, options);
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : trained.parameters()) parameter.normal_();
  }
  const auto file = std::filesystem::temp_directory_path() / ("cinch_lora_" + std::to_string(::getpid()));
  interchange::save_safetensors(file, {trained.tensors(), {{"format", "pt"}}});
  EXPECT_LT(std::filesystem::file_size(file), 40'000u) << "the base is not in it";
  const auto content = interchange::load_safetensors(file);
  std::filesystem::remove(file);
  EXPECT_TRUE(content.tensors.contains("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"));
  Lora loaded(*other, options);
  loaded.load(content.tensors);
  for (const auto& [name, tensor] : trained.tensors()) EXPECT_TRUE(at::equal(tensor, loaded.tensors().at(name))) << name;
}
}  // namespace
}  // namespace cinch::tests
