#pragma once
// What optimizers over fused ops share: state by parameter, clipping, one call for each kind of tensor.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cinch/optim/optimizer.h"

namespace cinch::optim::internal {

/// One tensor of state that every parameter has.
struct StateKey {
  std::string_view name;  ///< "exp_avg"
  bool scalar = false;    ///< A float32 scalar; else like the parameter.
};

class FusedOptimizer : public Optimizer {
 public:
  StepResult step(const StepOptions& options) final;
  std::map<std::string, at::Tensor> state() const final;
  void load_state(const std::map<std::string, at::Tensor>& state) final;

 protected:
  FusedOptimizer(std::vector<ParameterGroup> groups, std::vector<StateKey> keys);

  /// Parameters of one group, dtype and device that have gradients; `state[k]` are their tensors of the k-th key.
  struct Tensors {
    std::vector<at::Tensor> parameters, gradients;
    std::vector<std::vector<at::Tensor>> state;
    std::vector<at::Tensor> advanced_steps;  ///< By prepare().
  };
  /// Before any parameter is written: all that allocates, and so may fail.
  virtual void prepare(Tensors& /*tensors*/) {}
  /// Must not allocate.
  virtual void update(const ParameterGroup& group, Tensors& tensors) = 0;

 private:
  using ParameterState = std::vector<at::Tensor>;  ///< In the order of keys_.

  std::vector<ParameterState> make_state() const;
  void check_state(const std::map<std::string, at::Tensor>& state, const std::vector<ParameterState>& wanted) const;
  std::vector<Tensors> gather(const ParameterGroup& group, std::size_t first) const;

  const std::vector<StateKey> keys_;
  std::vector<ParameterState> state_;  ///< In the order of the groups' parameters; empty before the first step.
};

/// Scales `gradients` so that their global norm is at most `max_norm`; returns the norm before, a float32 scalar. Does
/// not wait for the device.
at::Tensor clip(const std::vector<at::Tensor>& gradients, double max_norm);
}  // namespace cinch::optim::internal
