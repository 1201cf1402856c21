#pragma once
// An optimizer over a Rule: state by parameter, clipping, one call for each kind of tensor.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cinch/optim/internal/rule.h"
#include "cinch/optim/optimizer.h"

namespace cinch::optim::internal {

class RuleOptimizer : public Optimizer {
 public:
  RuleOptimizer(std::vector<ParameterGroup> groups, std::unique_ptr<Rule> rule);
  StepResult step(const StepOptions& options) override;
  std::map<std::string, at::Tensor> state() const final;
  void load_state(const std::map<std::string, at::Tensor>& state) override;

  /// Steps one parameter, of `group` and at `index` among all, by its gradient; makes its state if it has none.
  virtual void step_parameter(const ParameterGroup& group, const NamedParameter& parameter, std::size_t index);

  /// For a wrapper that goes on in its place.
  std::vector<ParameterGroup> take_groups() { return std::move(groups_); }
  std::unique_ptr<Rule> take_rule() { return std::move(rule_); }

 protected:
  using ParameterState = std::vector<at::Tensor>;  ///< In the order of the rule's keys.

  const Rule& rule() const { return *rule_; }
  /// Of a parameter that has none. The default: tensors of their own.
  virtual ParameterState make_state(const NamedParameter& parameter, std::size_t index);
  /// Returns when the host may read and write the state.
  virtual void settle() const {}
  ParameterState fresh_state(const NamedParameter& parameter) const;
  /// The update of one parameter over `state`, prepared.
  Tensors gather_one(const NamedParameter& parameter, const ParameterState& state) const;
  at::Tensor clip_all(double max_norm) const;

  std::vector<ParameterState> state_;  ///< In the order of the groups' parameters; empty for those never stepped.

 private:
  void check_state(const std::map<std::string, at::Tensor>& state, const std::vector<ParameterState>& wanted) const;
  std::vector<Tensors> gather(const ParameterGroup& group, std::size_t first) const;
  [[noreturn]] void refuse(const std::string& problem) const;

  std::unique_ptr<Rule> rule_;
};

/// Calls `visit(group, parameter, index)` for each parameter of all groups.
template <class Groups, class Visit>
void for_each_parameter(Groups& groups, const Visit& visit) {
  std::size_t index = 0;
  for (auto& group : groups) {
    for (auto& parameter : group.parameters) visit(group, parameter, index++);
  }
}

/// The inside of an optimizer that a wrapper was given. Throws UsageError if it cannot be wrapped.
RuleOptimizer& wrapped(const std::unique_ptr<Optimizer>& optimizer, std::string_view wrapper);

/// The 2-norm of a gradient, a scalar on `device`; the one of all, from each one's; by what gradients are multiplied so
/// that it is at most `max_norm`. Nothing waits for the device.
at::Tensor norm_of(const at::Tensor& gradient, at::Device device);
at::Tensor norm_of_all(const std::vector<at::Tensor>& norms);
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);
}  // namespace cinch::optim::internal
