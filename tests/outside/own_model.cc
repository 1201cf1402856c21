// A Session trains a user's own model under a plan.
#include <memory>

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>

#include "cinch/train/session.h"
#include "outside.h"

namespace outside {
namespace {
class Classifier final : public cinch::models::Model {
 public:
  Classifier() : hidden_(12, 32), head_(32, 4) {
    register_module("hidden", hidden_);
    register_module("head", head_);
  }
  at::Tensor loss_sum(const cinch::data::Batch& batch) override {
    const at::Tensor logits = head_->forward(cinch::call(hidden_, batch.inputs).relu());
    return at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum);
  }

 private:
  torch::nn::Linear hidden_, head_;
};

/// Weights after `steps` steps on one batch; the loss of the first and of the last step.
struct Trained {
  std::vector<at::Tensor> weights;
  double first_loss = 0, last_loss = 0;
};
Trained train(const cinch::plan::Plan& plan, int steps) {
  at::manual_seed(7);
  cinch::data::Batch batch;
  batch.inputs = at::rand({16, 12});
  batch.targets = batch.inputs.slice(1, 0, 4).argmax(1);
  batch.target_count = 16;
  cinch::job::TrainConfig config;
  config.batch_size = 16;
  config.steps = steps;
  config.optimizer.kind = cinch::job::OptimizerKind::kSgd;
  config.learning_rate = 0.5;

  auto model = std::make_shared<Classifier>();
  cinch::train::Session session(model, config, plan);
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    trained.last_loss = session.step(batch).loss.item<double>();
    if (step == 0) trained.first_loss = trained.last_loss;
  }
  trained.weights = model->parameters();
  return trained;
}
}  // namespace

void train_own_model() {
  const Trained plain = train({}, 20);
  cinch::plan::Plan plan;
  plan.micro_batch_size = 3;  // The last micro-batch is a short one.
  plan.activations["hidden"] = cinch::plan::ActivationPolicy::kCheckpoint;
  const Trained planned = train(plan, 20);
  expect(plain.last_loss < 0.8 * plain.first_loss, "the loss to fall");
  for (std::size_t i = 0; i < plain.weights.size(); ++i)
    expect((plain.weights[i] - planned.weights[i]).norm().item<double>() <= 1e-6 * plain.weights[i].norm().item<double>(),
           "a plan to change weights by rounding alone");
}
}  // namespace outside
