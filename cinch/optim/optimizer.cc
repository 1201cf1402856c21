#include "cinch/optim/optimizer.h"

#include <set>
#include <unordered_set>
#include <utility>

#include <torch/nn/module.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/rule.h"

namespace cinch::optim {
namespace {
void check(const ParameterGroup& group) {
  internal::check_number(group.learning_rate, "learning rate");
  internal::check_number(group.weight_decay, "weight decay");
}
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

std::vector<ParameterGroup> without_decay_of_vectors(const torch::nn::Module& module, double learning_rate,
                                                     double weight_decay) {
  ParameterGroup decaying{{}, learning_rate, weight_decay}, others{{}, learning_rate, 0};
  for (auto& parameter : named(module)) {
    (parameter.tensor.dim() >= 2 ? decaying : others).parameters.push_back(std::move(parameter));
  }
  std::vector<ParameterGroup> groups{std::move(decaying), std::move(others)};
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  return groups;
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
  internal::check_number(rate, "learning rate");
  for (auto& group : groups_) group.learning_rate = rate;
}
}  // namespace cinch::optim
