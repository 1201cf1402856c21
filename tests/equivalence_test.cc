// The techniques' promises: checkpointing is bitwise, accumulation is the undivided gradient to rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "tests/jobs.h"

namespace cinch::tests {
namespace {

struct Trained {
  std::map<std::string, at::Tensor> weights;
  std::vector<double> losses;
};

Trained train_steps(const job::Job& job, const plan::Plan& plan, int steps) {
  train::Session session(job, plan);
  const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
  Trained trained;
  for (int step = 0; step < steps; ++step) trained.losses.push_back(session.step(source->next()).loss.item<double>());
  for (const auto& item : session.model().named_parameters()) trained.weights[item.key()] = item.value().detach().clone();
  for (const auto& item : session.model().named_buffers()) trained.weights[item.key()] = item.value().clone();
  return trained;
}

double relative_difference(const at::Tensor& left, const at::Tensor& right) {
  return ((left - right).norm() / right.norm()).item<double>();
}

class Checkpointing : public ::testing::TestWithParam<ModelKind> {};

/// Dropout draws the same numbers in the second run (OLMo-core#828, guided-diffusion#167).
TEST_P(Checkpointing, GivesBitwiseTheSameWeightsAfterTwentyStepsWithDropout) {
  train::set_threads(2);
  const auto job = small_job(GetParam(), 4);
  const auto plain = train_steps(job, {}, 20), checkpointed = train_steps(job, checkpoint_all(job), 20);
  EXPECT_EQ(plain.losses, checkpointed.losses);
  ASSERT_EQ(plain.weights.size(), checkpointed.weights.size());
  for (const auto& [name, tensor] : plain.weights) EXPECT_TRUE(at::equal(tensor, checkpointed.weights.at(name))) << name;
}
INSTANTIATE_TEST_SUITE_P(Models, Checkpointing, ::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp));

// ---- accumulation ---------------------------------------------------------------------------------------------------

/// A classifier whose loss leaves ignored targets out, and whose gradient can be looked at before it is dropped.
class Classifier : public models::Model {
 public:
  Classifier() {
    first_ = register_module("first", torch::nn::Linear(12, 40));
    second_ = register_module("second", torch::nn::Linear(40, 7));
  }
  at::Tensor loss_sum(const data::Batch& batch) override {
    return at::cross_entropy_loss(second_->forward(first_->forward(batch.inputs).tanh()), batch.targets, {}, at::Reduction::Sum, data::kIgnored);
  }

 private:
  torch::nn::Linear first_{nullptr}, second_{nullptr};
};

/// `ignored` of the targets do not count.
data::Batch batch_with_ignored(std::int64_t size, std::int64_t ignored) {
  data::Batch batch{at::randn({size, 12}), at::randint(7, {size}, at::kLong), size - ignored};
  batch.targets.narrow(0, 1, ignored).fill_(data::kIgnored);
  return batch;
}

/// One SGD step at rate 1: the weights' change is the gradient.
std::map<std::string, at::Tensor> gradient(const data::Batch& batch, std::int64_t micro_batch_size) {
  at::manual_seed(3);
  auto model = std::make_shared<Classifier>();
  std::map<std::string, at::Tensor> before, change;
  for (const auto& item : model->named_parameters()) before[item.key()] = item.value().detach().to(at::kDouble);
  job::TrainConfig config;
  config.optimizer.kind = job::OptimizerKind::kSgd;
  config.learning_rate = 1;
  config.steps = 100;
  plan::Plan plan;
  plan.micro_batch_size = micro_batch_size;
  train::Session(model, config, plan).step(batch);
  for (const auto& item : model->named_parameters()) change[item.key()] = before[item.key()] - item.value().detach().to(at::kDouble);
  return change;
}

/// Not the sum divided by the number of full windows (ms-swift#10084, minimind#749, Lightning#19987), nor the mean of
/// means of windows that count unequally (transformers#34191, mlx-lm#1413, open_clip#1211).
TEST(Accumulation, GivesTheUndividedGradientWithAShortLastWindowAndIgnoredTargets) {
  at::manual_seed(1);
  for (std::int64_t ignored : {0, 3, 9}) {
    const auto batch = batch_with_ignored(14, ignored);
    const auto whole = gradient(batch, 0);
    for (std::int64_t micro : {1, 3, 4, 5, 7, 13})  // 13 leaves a last window of 1; micro 1 has windows that count nothing
      for (const auto& [name, tensor] : gradient(batch, micro))
        EXPECT_LT(relative_difference(tensor, whole.at(name)), 1e-6) << name << ", micro-batch " << micro << ", ignored " << ignored;
  }
}

class AccumulatedTraining : public ::testing::TestWithParam<ModelKind> {};

TEST_P(AccumulatedTraining, EndsWithTheSameWeightsAfterTwentySgdSteps) {
  train::set_threads(2);
  auto job = small_job(GetParam(), 10);
  if (auto* gpt = std::get_if<job::GptConfig>(&job.model)) gpt->dropout = 0;
  if (auto* mlp = std::get_if<job::MlpConfig>(&job.model)) mlp->dropout = 0;
  job.train.optimizer.kind = job::OptimizerKind::kSgd;
  job.train.steps = 20;
  const auto plain = train_steps(job, {}, 20);
  plan::Plan plan;
  plan.micro_batch_size = 4;  // 4 + 4 + 2
  const auto divided = train_steps(job, plan, 20);
  for (const auto& [name, tensor] : plain.weights) {
    if (tensor.norm().item<double>() == 0) continue;
    EXPECT_LT(relative_difference(divided.weights.at(name), tensor), 1e-6) << name;
  }
}
INSTANTIATE_TEST_SUITE_P(Models, AccumulatedTraining, ::testing::Values(ModelKind::kGpt, ModelKind::kMlp));
}  // namespace
}  // namespace cinch::tests
