#pragma once
// Optimizers over LibTorch's fused ops.
//
//   auto optimizer = optim::adamw({{.parameters = optim::named(*model), .learning_rate = 3e-4}});
//   loss.backward();
//   optimizer->step({.max_grad_norm = 1.0});

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace cinch::optim {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double learning_rate = 0;
  double weight_decay = 0;
};
/// Parameters of `module` that require gradients, by module path; a tied one once, under its first name.
std::vector<NamedParameter> named(const torch::nn::Module& module);

struct StepOptions {
  std::optional<double> max_grad_norm;  ///< Global norm, accumulated in fp32, tied parameters once.
};
struct StepResult {
  at::Tensor grad_norm;  ///< Before clipping; undefined without max_grad_norm. Reading it is the caller's synchronisation.
};

/// Clipping is an argument of step(), not the loop's business: an optimizer that steps inside backward, or whose gradients
/// are sharded, must do it in its own order. Parameters without a gradient are passed over.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual StepResult step(const StepOptions& options = {}) = 0;
  /// Sets gradients to undefined.
  void zero_grad();
  std::span<ParameterGroup> groups() { return groups_; }
  void set_learning_rate(double rate);
  /// By "PARAMETER.exp_avg" and so on, for safetensors: views of the live state, not copies.
  virtual std::map<std::string, at::Tensor> state() const = 0;
  /// Copies in. Throws DataError: missing, extra, wrong shape or dtype, naming the key. All or nothing.
  virtual void load_state(const std::map<std::string, at::Tensor>& state) = 0;

 protected:
  explicit Optimizer(std::vector<ParameterGroup> groups);  ///< UsageError: no parameters, a rate that is not finite or < 0.
  std::vector<ParameterGroup> groups_;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};
struct SgdOptions {
  double momentum = 0;
};
std::unique_ptr<Optimizer> adamw(std::vector<ParameterGroup> groups, AdamWOptions options = {});  ///< at::_fused_adamw_
std::unique_ptr<Optimizer> sgd(std::vector<ParameterGroup> groups, SgdOptions options = {});      ///< at::_fused_sgd_
}  // namespace cinch::optim
