#pragma once
// One optimizer's arithmetic, apart from where its state lies and when it runs: at the end of a step, inside backward,
// or over state that is brought in from elsewhere.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cinch/optim/optimizer.h"

namespace cinch::optim::internal {

/// One tensor of state that a parameter has.
struct StateKey {
  std::string_view name;                              ///< "exp_avg"
  std::function<at::Tensor(const at::Tensor&)> make;  ///< As it is before the first step, given the parameter.
};
at::Tensor zeros_like_parameter(const at::Tensor& parameter);
at::Tensor zero_scalar(const at::Tensor& parameter);  ///< float32, on the parameter's device.
/// float32, on the host wherever the parameter is: for kernels that take numbers made of it, so that no device is
/// waited for.
at::Tensor zero_on_host(const at::Tensor& parameter);

/// Parameters of one group, dtype, device and kind that have gradients; `state[k]` are their tensors of the k-th key.
struct Tensors {
  int kind = 0;
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::vector<at::Tensor>> state;
  std::vector<at::Tensor> advanced_steps;  ///< By prepare(), as is `scratch`.
  at::Tensor scratch, wide_scratch;
};

class Rule {
 public:
  virtual ~Rule() = default;
  /// Throws UnsupportedError for a parameter that the rule has no kernel for.
  virtual void check(const NamedParameter& /*parameter*/) const {}
  /// Parameters of one kind have the same keys.
  virtual int kind_of(const NamedParameter& /*parameter*/) const { return 0; }
  virtual const std::vector<StateKey>& keys(int kind) const = 0;
  /// Before any parameter is written: all that allocates, and so may fail.
  virtual void prepare(Tensors& /*tensors*/) const {}
  /// Must not allocate before it writes.
  virtual void update(const ParameterGroup& group, Tensors& tensors) const = 0;
  /// What to do about a state that is not this optimizer's.
  virtual std::string load_hint() const { return "Load the state of the same optimizer over the same model."; }
};

/// Throws UnsupportedError unless `parameter` is a dense floating-point tensor on the CPU or on CUDA: for rules whose
/// kernels are cinch's own.
void check_dense(const NamedParameter& parameter, std::string_view optimizer);
/// Throws UsageError unless the number is finite and at least 0.
void check_number(double value, const std::string& what);
void check_beta(double beta, const std::string& what);  ///< In [0, 1).
}  // namespace cinch::optim::internal
