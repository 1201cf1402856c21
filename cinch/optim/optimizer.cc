#include "cinch/optim/optimizer.h"

#include <cmath>
#include <set>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/fused_optimizer.h"

namespace cinch::optim {
namespace {

void check(double value, const std::string& what) {
  if (!std::isfinite(value) || value < 0) {
    throw UsageError("The " + what + " must be a finite number, at least 0, not " + std::to_string(value) + ".");
  }
}

void check(const ParameterGroup& group) {
  check(group.learning_rate, "learning rate");
  check(group.weight_decay, "weight decay");
}

class AdamW final : public internal::FusedOptimizer {
 public:
  AdamW(std::vector<ParameterGroup> groups, AdamWOptions options)
      : FusedOptimizer(std::move(groups), {{"exp_avg"}, {"exp_avg_sq"}, {"step", /*scalar=*/true}}), options_(options) {
    check(options_.beta1, "beta1");
    check(options_.beta2, "beta2");
    check(options_.eps, "eps");
    if (options_.beta1 >= 1 || options_.beta2 >= 1) throw UsageError("The betas must be below 1.");
  }

 private:
  void prepare(Tensors& tensors) override {
    for (const auto& step : tensors.state[2]) tensors.advanced_steps.push_back(step + 1);
  }
  void update(const ParameterGroup& group, Tensors& tensors) override {
    at::_fused_adamw_(tensors.parameters, tensors.gradients, tensors.state[0], tensors.state[1],
                      /*max_exp_avg_sqs=*/{}, tensors.advanced_steps, group.learning_rate, options_.beta1, options_.beta2,
                      group.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
    for (std::size_t i = 0; i < tensors.advanced_steps.size(); ++i) tensors.state[2][i].copy_(tensors.advanced_steps[i]);
  }

  const AdamWOptions options_;
};

class Sgd final : public internal::FusedOptimizer {
 public:
  Sgd(std::vector<ParameterGroup> groups, SgdOptions options)
      : FusedOptimizer(std::move(groups), options.momentum == 0 ? std::vector<internal::StateKey>()
                                                                : std::vector<internal::StateKey>{{"momentum_buffer"}}),
        options_(options) {
    check(options_.momentum, "momentum");
  }

 private:
  void update(const ParameterGroup& group, Tensors& tensors) override {
    const auto buffers = tensors.state.empty() ? std::vector<at::Tensor>() : tensors.state[0];
    // Without dampening, a first step is like any other over a buffer of zeros.
    at::_fused_sgd_(tensors.parameters, tensors.gradients, buffers, group.weight_decay, options_.momentum,
                    group.learning_rate, /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false);
  }

  const SgdOptions options_;
};

}  // namespace

std::vector<NamedParameter> named(const torch::nn::Module& module) {
  std::vector<NamedParameter> result;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& tensor = item.value();
    if (tensor.requires_grad() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.push_back({item.key(), tensor});
    }
  }
  return result;
}

Optimizer::Optimizer(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {
  std::unordered_set<const at::TensorImpl*> seen;
  std::set<std::string> names;
  for (auto& group : groups_) {
    check(group);
    std::erase_if(group.parameters, [&seen](const NamedParameter& parameter) {
      return !seen.insert(parameter.tensor.unsafeGetTensorImpl()).second;  // tied: once, under its first name
    });
    for (const auto& parameter : group.parameters) {
      if (!names.insert(parameter.name).second) {
        throw UsageError("Two parameters of the optimizer are named \"" + parameter.name + "\".");
      }
    }
  }
  if (names.empty()) throw UsageError("The optimizer has no parameters.", "Does any parameter require a gradient?");
}

void Optimizer::zero_grad() {
  for (auto& group : groups_) {
    for (auto& parameter : group.parameters) parameter.tensor.mutable_grad().reset();
  }
}

void Optimizer::set_learning_rate(double rate) {
  check(rate, "learning rate");
  for (auto& group : groups_) group.learning_rate = rate;
}

std::unique_ptr<Optimizer> adamw(std::vector<ParameterGroup> groups, AdamWOptions options) {
  return std::make_unique<AdamW>(std::move(groups), options);
}

std::unique_ptr<Optimizer> sgd(std::vector<ParameterGroup> groups, SgdOptions options) {
  return std::make_unique<Sgd>(std::move(groups), options);
}

}  // namespace cinch::optim
