#include "cinch/optim/internal/rule_optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"

namespace cinch::optim::internal {
namespace {
/// Of a parameter that was never stepped, in a state that others have: it is known, and has none.
constexpr char kNoState[] = "no_state";

std::string key_of(const NamedParameter& parameter, std::string_view key) {
  return parameter.name + "." + std::string(key);
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

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.device() == b.device() && a.scalar_type() == b.scalar_type();
}
}  // namespace

at::Tensor zeros_like_parameter(const at::Tensor& parameter) { return at::zeros_like(parameter); }

at::Tensor zero_scalar(const at::Tensor& parameter) {
  return at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false));
}

at::Tensor zero_on_host(const at::Tensor& /*parameter*/) { return at::zeros({}, at::kFloat); }

void check_dense(const NamedParameter& parameter, std::string_view optimizer) {
  const auto& tensor = parameter.tensor;
  const std::string name(optimizer);
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    throw UnsupportedError("The parameter \"" + parameter.name + "\" is on " + tensor.device().str() + "; " + name +
                               " runs on the CPU and on CUDA.",
                           "adamw(), adam() and sgd() run on any device.");
  }
  if (tensor.layout() == at::kStrided && tensor.is_floating_point() && tensor.is_non_overlapping_and_dense()) return;
  throw UnsupportedError("The parameter \"" + parameter.name + "\" is no dense floating-point tensor, which " + name +
                         " needs.");
}

void check_number(double value, const std::string& what) {
  if (std::isfinite(value) && value >= 0) return;
  throw UsageError("The " + what + " must be a finite number, at least 0, not " + std::to_string(value) + ".");
}

void check_beta(double beta, const std::string& what) {
  check_number(beta, what);
  if (beta >= 1) throw UsageError("The " + what + " must be below 1, not " + std::to_string(beta) + ".");
}

at::Tensor norm_of(const at::Tensor& gradient, at::Device device) {
  // In the gradient's own dtype the squares of fp16 would overflow.
  const auto dtype = at::promote_types(gradient.scalar_type(), at::kFloat);
  return at::linalg_vector_norm(gradient, 2, std::nullopt, false, dtype).to(device, at::kFloat);
}

at::Tensor norm_of_all(const std::vector<at::Tensor>& norms) {
  return norms.empty() ? at::zeros({}, at::kFloat) : at::linalg_vector_norm(at::stack(norms));
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) { return (max_norm / (norm + 1e-6)).clamp_max(1.0); }

RuleOptimizer& wrapped(const std::unique_ptr<Optimizer>& optimizer, std::string_view wrapper) {
  auto* inside = dynamic_cast<RuleOptimizer*>(optimizer.get());
  if (inside != nullptr) return *inside;
  throw UsageError(
      std::string(wrapper) + "() was given " +
          (optimizer ? "an optimizer that is wrapped already, or not cinch's." : "no optimizer."),
      "Give it the result of adamw(), adamw_8bit() and so on; in_backward(offloaded(…)) is the order of two.");
}

RuleOptimizer::RuleOptimizer(std::vector<ParameterGroup> groups, std::unique_ptr<Rule> rule)
    : Optimizer(std::move(groups)), rule_(std::move(rule)) {
  std::size_t count = 0;
  for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t) {
    rule_->check(parameter);
    ++count;
  });
  state_.resize(count);
}

at::Tensor RuleOptimizer::clip_all(double max_norm) const {
  std::vector<at::Tensor> gradients, norms;
  for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t) {
    const auto& gradient = parameter.tensor.grad();
    if (!gradient.defined()) return;
    gradients.push_back(gradient);
    norms.push_back(norm_of(gradient, gradients.front().device()));
  });
  auto norm = norm_of_all(norms);
  if (gradients.empty()) return norm;
  const auto factor = clip_factor(norm, max_norm);
  for (const auto& gradient : gradients) gradient.mul_(factor.to(gradient.device()));
  return norm;
}

StepResult RuleOptimizer::step(const StepOptions& options) {
  const at::NoGradGuard no_grad;
  StepResult result;
  if (options.max_grad_norm) result.grad_norm = clip_all(*options.max_grad_norm);
  for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t index) {
    if (state_[index].empty() && parameter.tensor.grad().defined()) state_[index] = make_state(parameter, index);
  });
  // All that can fail comes before the first weight changes.
  std::vector<std::pair<const ParameterGroup*, Tensors>> updates;
  std::size_t first = 0;
  for (const auto& group : groups_) {
    for (auto& tensors : gather(group, first)) updates.emplace_back(&group, std::move(tensors));
    first += group.parameters.size();
  }
  for (auto& [group, tensors] : updates) rule_->prepare(tensors);
  for (auto& [group, tensors] : updates) rule_->update(*group, tensors);
  return result;
}

Tensors RuleOptimizer::gather_one(const NamedParameter& parameter, const ParameterState& state) const {
  Tensors tensors;
  tensors.kind = rule_->kind_of(parameter);
  tensors.parameters = {parameter.tensor};
  tensors.gradients = {laid_out_as(parameter.tensor, parameter.tensor.grad())};
  for (const auto& tensor : state) tensors.state.push_back({tensor});
  return tensors;
}

void RuleOptimizer::step_parameter(const ParameterGroup& group, const NamedParameter& parameter, std::size_t index) {
  const at::NoGradGuard no_grad;
  if (state_[index].empty()) state_[index] = make_state(parameter, index);
  auto tensors = gather_one(parameter, state_[index]);
  rule_->prepare(tensors);
  rule_->update(group, tensors);
}

std::vector<Tensors> RuleOptimizer::gather(const ParameterGroup& group, std::size_t first) const {
  std::vector<Tensors> kinds;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const auto& parameter = group.parameters[i];
    if (!parameter.tensor.grad().defined()) continue;
    auto one = gather_one(parameter, state_[first + i]);
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Tensors& other) {
      return other.kind == one.kind && alike(other.parameters.front(), parameter.tensor);
    });
    if (kind == kinds.end()) {
      kinds.push_back(std::move(one));
      continue;
    }
    kind->parameters.push_back(std::move(one.parameters.front()));
    kind->gradients.push_back(std::move(one.gradients.front()));
    for (std::size_t k = 0; k < one.state.size(); ++k) kind->state[k].push_back(std::move(one.state[k].front()));
  }
  return kinds;
}

RuleOptimizer::ParameterState RuleOptimizer::fresh_state(const NamedParameter& parameter) const {
  ParameterState state;
  for (const auto& key : rule_->keys(rule_->kind_of(parameter))) {
    state.push_back(key.make(parameter.tensor));
    record::label(state.back(), trace::Category::kOptimizerState, key_of(parameter, key.name));
  }
  return state;
}

RuleOptimizer::ParameterState RuleOptimizer::make_state(const NamedParameter& parameter, std::size_t /*index*/) {
  return fresh_state(parameter);
}

std::map<std::string, at::Tensor> RuleOptimizer::state() const {
  settle();
  std::map<std::string, at::Tensor> result;
  const bool any = std::any_of(state_.begin(), state_.end(), [](const auto& state) { return !state.empty(); });
  if (!any) return result;
  for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t index) {
    const auto& keys = rule_->keys(rule_->kind_of(parameter));
    for (std::size_t k = 0; k < state_[index].size(); ++k) {
      result.emplace(key_of(parameter, keys[k].name), state_[index][k]);
    }
    if (state_[index].empty()) result.emplace(key_of(parameter, kNoState), at::empty({0}, at::kByte));
  });
  return result;
}

void RuleOptimizer::load_state(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  if (state.empty()) {  // as before the first step
    for (auto& own : state_) own.clear();
    return;
  }
  auto made = state_;
  for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t index) {
    if (state.contains(key_of(parameter, kNoState)))
      made[index].clear();
    else if (made[index].empty())
      made[index] = make_state(parameter, index);
  });
  check_state(state, made);
  for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t index) {
    const auto& keys = rule_->keys(rule_->kind_of(parameter));
    for (std::size_t k = 0; k < made[index].size(); ++k) {
      made[index][k].copy_(state.at(key_of(parameter, keys[k].name)));
    }
  });
  state_ = std::move(made);
}

void RuleOptimizer::refuse(const std::string& problem) const {
  throw DataError("optimizer state", 0, problem, rule_->load_hint());
}

void RuleOptimizer::check_state(const std::map<std::string, at::Tensor>& state,
                                const std::vector<ParameterState>& wanted) const {
  std::set<std::string> known;
  for_each_parameter(groups_, [&](const ParameterGroup&, const NamedParameter& parameter, std::size_t index) {
    if (wanted[index].empty()) known.insert(key_of(parameter, kNoState));
    const auto& keys = rule_->keys(rule_->kind_of(parameter));
    for (std::size_t k = 0; k < wanted[index].size(); ++k) {
      const auto key = key_of(parameter, keys[k].name);
      const auto entry = state.find(key);
      if (entry == state.end()) refuse("\"" + key + "\" is missing.");
      known.insert(key);
      const auto& own = wanted[index][k];
      if (entry->second.sizes() == own.sizes() && entry->second.scalar_type() == own.scalar_type()) continue;
      refuse("\"" + key + "\" is " + describe(entry->second) + ", not " + describe(own) + ".");
    }
  });
  for (const auto& [key, tensor] : state) {
    if (!known.contains(key)) refuse("\"" + key + "\" belongs to no parameter of this optimizer.");
  }
}
}  // namespace cinch::optim::internal
