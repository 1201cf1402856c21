// The loss in chunks: predicted equals measured, and the same training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/models/model.h"
#include "cinch/techniques/linear_cross_entropy.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {

std::shared_ptr<models::Model> chunked_model(const job::Job& job, std::int64_t chunk) {
  at::manual_seed(job.train.seed);
  auto model = models::build(job.model);
  model->set_loss_chunk_size(chunk);
  return model;
}

/// Initialization, two steps, an evaluation.
void run(const job::Job& job, const plan::Plan& plan) {
  const auto next = [&] { return data::example_batch(job.data, job.model, job.train.batch_size); };
  const auto session = [&] {
    const trace::PhaseScope init(trace::Phase::kInit, 0);
    return std::make_unique<train::Session>(job, plan);
  }();
  for (std::uint32_t step = 1; step <= 2; ++step) train::run_step(*session, next, step);
  train::run_evaluation(*session, next, 1, 2);
}

using Case = std::tuple<ModelKind, job::Precision, std::int64_t, bool, int>;
class ChunkedLoss : public ::testing::TestWithParam<Case> {};

TEST_P(ChunkedLoss, IsPredictedToTheByte) {
  const auto [kind, precision, chunk, checkpointed, threads] = GetParam();
  train::set_threads(threads);
  auto job = small_job(kind, 4);
  job.train.precision = precision;
  auto plan = checkpointed ? checkpoint_all(job) : plan::Plan{};
  plan.loss_chunk_size = chunk;
  trace::Trace predicted, recorded, checked;
  {
    const dryrun::DryRun dry(predicted, device::find("cpu"));
    run(job, plan);
  }
  {
    const record::Recorder recorder(recorded);
    run(job, plan);
  }
  EXPECT_EQ(trace::compare_phase_ends(predicted, recorded).value_or("no difference"), "no difference");
  const trace::Timeline left(predicted), right(recorded);
  EXPECT_GT(left.peak().bytes, Bytes());
  EXPECT_EQ(left.peak().bytes, right.peak().bytes);
  for (std::uint32_t step = 1; step <= 2; ++step) EXPECT_EQ(left.peak(step).bytes, right.peak(step).bytes) << step;
  const dryrun::internal::CheckRules check;
  {
    const dryrun::DryRun dry(checked, device::find("cpu"));
    run(job, plan);
  }
  EXPECT_THAT(dryrun::internal::CheckRules::faults(), ::testing::IsEmpty());
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const auto [kind, precision, chunk, checkpointed, threads] = info.param;
  return name_of(kind) + (precision == job::Precision::kBf16 ? "Bf16" : "Fp32") + "Chunk" + std::to_string(chunk) +
         (checkpointed ? "Checkpointed" : "") + "Threads" + std::to_string(threads);
}
INSTANTIATE_TEST_SUITE_P(Matrix, ChunkedLoss,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kBertMasked,
                                                              ModelKind::kLlama, ModelKind::kLlamaTied),
                                            ::testing::Values(job::Precision::kFp32, job::Precision::kBf16),
                                            ::testing::Values(32, 50), ::testing::Bool(), ::testing::Values(1, 2)),
                         name_of_case);

/// Of one batch, by the same weights and random numbers.
std::map<std::string, at::Tensor> gradients(const job::Job& job, std::int64_t chunk, const data::Batch& batch) {
  const auto model = chunked_model(job, chunk);
  at::manual_seed(3);
  (model->loss_sum(batch) / batch.target_count).backward();
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model->named_parameters()) all[item.key()] = item.value().grad();
  return all;
}

class ChunkedModels : public ::testing::TestWithParam<ModelKind> {};
INSTANTIATE_TEST_SUITE_P(Models, ChunkedModels,
                         ::testing::Values(ModelKind::kGpt, ModelKind::kBertMasked, ModelKind::kLlama,
                                           ModelKind::kLlamaTied),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(ChunkedModels, GiveTheGradientsOfTheWholeLoss) {
  train::set_threads(2);
  const auto job = small_job(GetParam(), 4);
  auto batch = data::example_batch(job.data, job.model, 4);
  batch.targets = batch.targets.clone();
  batch.targets.narrow(0, 1, 1).fill_(data::kIgnored);
  batch.target_count = batch.targets.ne(data::kIgnored).sum().item<std::int64_t>();
  const auto plain = gradients(job, 0, batch);
  for (const auto& [name, gradient] : gradients(job, 1'000'000, batch))
    EXPECT_TRUE(at::equal(gradient, plain.at(name))) << name << ": one chunk is the plain loss, bitwise";
  for (const std::int64_t chunk : {1, 7, 33, 100})
    for (const auto& [name, gradient] : gradients(job, chunk, batch)) {
      const auto norm = plain.at(name).norm().item<double>();
      if (norm < 1e-7) continue;  // zero in exact arithmetic, such as biases of keys
      EXPECT_LT((gradient - plain.at(name)).norm().item<double>() / norm, 2e-6) << name << ", chunk " << chunk;
    }
}

TEST(ChunkedModelsOnly, OfManyClassesForEachTokenDivideTheirLoss) {
  for (const auto kind : kAllModels) {
    const auto model = models::build(small_model(kind));
    const bool divides = kind == ModelKind::kGpt || kind == ModelKind::kBertMasked || kind == ModelKind::kLlama ||
                         kind == ModelKind::kLlamaTied || kind == ModelKind::kLstm;
    EXPECT_EQ(model->divides_loss(), divides) << name_of(kind);
    EXPECT_NO_THROW(model->set_loss_chunk_size(0));
    EXPECT_THROW(model->set_loss_chunk_size(-1), UsageError);
    if (!divides) {
      EXPECT_THROW(model->set_loss_chunk_size(8), UsageError) << name_of(kind);
    }
  }
}

// ---- published figures, at their own size: dry ----------------------------------------------------------------------

Bytes dry_peak(at::ScalarType dtype, std::int64_t rows, std::int64_t features, std::int64_t classes, std::int64_t chunk) {
  trace::Trace trace;
  Bytes before;
  {
    const dryrun::DryRun dry(trace, device::find("cpu"));
    const auto hidden = at::empty({rows, features}, dtype), weight = at::empty({classes, features}, dtype);
    const auto targets = at::zeros({rows}, at::kLong);
    before = Bytes((rows + classes) * features * static_cast<std::int64_t>(c10::elementSize(dtype)) + rows * 8);
    if (chunk < 0) static_cast<void>(at::linear(hidden, weight));
    else linear_cross_entropy(hidden, weight, {}, targets, {.chunk_size = chunk});
  }
  return trace::Timeline(trace).peak().bytes - before;
}
double gib(Bytes bytes) { return static_cast<double>(bytes.count()) / (std::int64_t{1} << 30); }

/// ISEEKYAN/Megatron-LM#132: 8192 × 151936, chunks of 1024: 4.638 GiB of logits become 0.580.
TEST(ChunkedLossFigures, OfMegatronsIssue) {
  EXPECT_NEAR(gib(dry_peak(at::kFloat, 8192, 16, 151936, -1)), 4.637, 0.001);
  EXPECT_NEAR(gib(dry_peak(at::kFloat, 8192, 16, 151936, 1024)), 0.580, 0.001);
}

/// jax#35915: logits of 8192 × 128 Ki take 2 GiB in bfloat16; the 4 that were printed are those in float32.
TEST(ChunkedLossFigures, OfATableOfLogits) {
  EXPECT_EQ(dry_peak(at::kBFloat16, 8192, 1152, 131072, -1), Bytes(std::int64_t{2} << 30));
  EXPECT_EQ(dry_peak(at::kFloat, 8192, 16, 131072, -1), Bytes(std::int64_t{4} << 30));
}
}  // namespace
}  // namespace cinch::tests
