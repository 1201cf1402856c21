#include "cinch/optim/internal/fused_optimizer.h"

#include <sstream>
#include <utility>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"

namespace cinch::optim::internal {
namespace {

/// Calls `visit(parameter, index)` for each parameter of all groups.
template <class Groups, class Visit>
void for_each_parameter(Groups& groups, const Visit& visit) {
  std::size_t index = 0;
  for (auto& group : groups) {
    for (auto& parameter : group.parameters) visit(parameter, index++);
  }
}

/// Fused kernels walk over parameter and gradient side by side in memory: same strides.
at::Tensor laid_out_as(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter, gradient.scalar_type()).copy_(gradient);
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return text.str();
}

[[noreturn]] void refuse(const std::string& problem) {
  throw DataError("optimizer state", 0, problem, "Load the state of the same optimizer over the same model.");
}

}  // namespace

at::Tensor clip(const std::vector<at::Tensor>& gradients, double max_norm) {
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  std::vector<at::Tensor> norms;
  norms.reserve(gradients.size());
  const auto device = gradients.front().device();
  for (const auto& gradient : gradients) {
    // In the gradient's own dtype the squares of fp16 would overflow.
    const auto dtype = at::promote_types(gradient.scalar_type(), at::kFloat);
    norms.push_back(at::linalg_vector_norm(gradient, 2, std::nullopt, false, dtype).to(device, at::kFloat));
  }
  const auto norm = at::linalg_vector_norm(at::stack(norms));
  const auto factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  for (const auto& gradient : gradients) gradient.mul_(factor.to(gradient.device()));
  return norm;
}

FusedOptimizer::FusedOptimizer(std::vector<ParameterGroup> groups, std::vector<StateKey> keys)
    : Optimizer(std::move(groups)), keys_(std::move(keys)) {}

StepResult FusedOptimizer::step(const StepOptions& options) {
  const at::NoGradGuard no_grad;
  StepResult result;
  if (options.max_grad_norm) {
    std::vector<at::Tensor> gradients;
    for_each_parameter(groups_, [&](const NamedParameter& parameter, std::size_t) {
      if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
    });
    result.grad_norm = clip(gradients, *options.max_grad_norm);
  }
  if (state_.empty()) state_ = make_state();
  // All that can fail comes before the first weight changes.
  std::vector<std::pair<const ParameterGroup*, Tensors>> updates;
  std::size_t first = 0;
  for (const auto& group : groups_) {
    for (auto& tensors : gather(group, first)) updates.emplace_back(&group, std::move(tensors));
    first += group.parameters.size();
  }
  for (auto& [group, tensors] : updates) prepare(tensors);
  for (auto& [group, tensors] : updates) update(*group, tensors);
  return result;
}

std::vector<FusedOptimizer::Tensors> FusedOptimizer::gather(const ParameterGroup& group, std::size_t first) const {
  std::vector<Tensors> kinds;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const auto& parameter = group.parameters[i].tensor;
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    auto kind = kinds.begin();
    while (kind != kinds.end() && (kind->parameters.front().device() != parameter.device() ||
                                   kind->parameters.front().scalar_type() != parameter.scalar_type())) {
      ++kind;
    }
    if (kind == kinds.end()) {
      kind = kinds.emplace(kind);
      kind->state.resize(keys_.size());
    }
    kind->parameters.push_back(parameter);
    kind->gradients.push_back(laid_out_as(parameter, gradient));
    for (std::size_t k = 0; k < keys_.size(); ++k) kind->state[k].push_back(state_[first + i][k]);
  }
  return kinds;
}

std::vector<FusedOptimizer::ParameterState> FusedOptimizer::make_state() const {
  std::vector<ParameterState> state;
  for_each_parameter(groups_, [&](const NamedParameter& parameter, std::size_t) {
    auto& tensors = state.emplace_back();
    for (const auto& key : keys_) {
      tensors.push_back(key.scalar ? at::zeros({}, parameter.tensor.options().dtype(at::kFloat).requires_grad(false))
                                   : at::zeros_like(parameter.tensor));
      record::label(tensors.back(), trace::Category::kOptimizerState, parameter.name + "." + std::string(key.name));
    }
  });
  return state;
}

std::map<std::string, at::Tensor> FusedOptimizer::state() const {
  std::map<std::string, at::Tensor> result;
  if (state_.empty()) return result;
  for_each_parameter(groups_, [&](const NamedParameter& parameter, std::size_t index) {
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      result.emplace(parameter.name + "." + std::string(keys_[k].name), state_[index][k]);
    }
  });
  return result;
}

void FusedOptimizer::load_state(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  if (state.empty()) {  // as before the first step
    state_.clear();
    return;
  }
  const auto made = state_.empty() ? make_state() : state_;
  check_state(state, made);
  for_each_parameter(groups_, [&](const NamedParameter& parameter, std::size_t index) {
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      made[index][k].copy_(state.at(parameter.name + "." + std::string(keys_[k].name)));
    }
  });
  state_ = made;
}

void FusedOptimizer::check_state(const std::map<std::string, at::Tensor>& state,
                                 const std::vector<ParameterState>& wanted) const {
  std::size_t found = 0;
  for_each_parameter(groups_, [&](const NamedParameter& parameter, std::size_t index) {
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      const auto key = parameter.name + "." + std::string(keys_[k].name);
      const auto entry = state.find(key);
      if (entry == state.end()) refuse("\"" + key + "\" is missing.");
      ++found;
      const auto& own = wanted[index][k];
      if (entry->second.sizes() == own.sizes() && entry->second.scalar_type() == own.scalar_type()) continue;
      refuse("\"" + key + "\" is " + describe(entry->second) + ", not " + describe(own) + ".");
    }
  });
  if (found == state.size()) return;
  std::map<std::string, at::Tensor> extra = state;
  for_each_parameter(groups_, [&](const NamedParameter& parameter, std::size_t) {
    for (const auto& key : keys_) extra.erase(parameter.name + "." + std::string(key.name));
  });
  refuse("\"" + extra.begin()->first + "\" belongs to no parameter of this optimizer.");
}

}  // namespace cinch::optim::internal
